//! The macros, one a line: `name, other name (parameters) = expression`.
//!
//! A macro may use those above it. Functions of the same name that are not macros stay for other numbers of arguments.
//! Names that begin with `pellucid_` are functions of our own that only macros call.

/// The macros.
pub(crate) const MACROS: &str = r#"
# Dates and timestamps
year (x) = date_part('year', x)
quarter (x) = date_part('quarter', x)
month (x) = date_part('month', x)
week, weekofyear (x) = date_part('week', x)
day, dayofmonth (x) = date_part('day', x)
hour (x) = date_part('hour', x)
minute (x) = date_part('minute', x)
second (x) = date_part('second', x)
millisecond (x) = date_part('millisecond', x)
microsecond (x) = date_part('microsecond', x)
nanosecond (x) = date_part('nanosecond', x)
dow, dayofweek, weekday (x) = date_part('dow', x)
isodow (x) = date_part('isodow', x)
doy, dayofyear (x) = date_part('doy', x)
isoyear (x) = date_part('isoyear', x)
epoch (x) = date_part('epoch', x)
yearweek (x) = date_part('isoyear', x) * 100 + date_part('week', x)
decade (x) = CAST(floor(date_part('year', x) / 10) AS BIGINT)
century (x) = CAST(floor((date_part('year', x) + 99) / 100) AS BIGINT)
millennium (x) = CAST(floor((date_part('year', x) + 999) / 1000) AS BIGINT)
pellucid_trunc_decade (x) = CAST(make_date(CAST(floor(date_part('year', x) / 10) * 10 AS INT), 1, 1) AS TIMESTAMP)
pellucid_trunc_century (x) = CAST(make_date(CAST(floor((date_part('year', x) - 1) / 100) * 100 + 1 AS INT), 1, 1) AS TIMESTAMP)
pellucid_trunc_millennium (x) = CAST(make_date(CAST(floor((date_part('year', x) - 1) / 1000) * 1000 + 1 AS INT), 1, 1) AS TIMESTAMP)
era (x) = CASE WHEN date_part('year', x) > 0 THEN 1 WHEN x IS NULL THEN NULL ELSE 0 END
julian (x) = date_part('epoch', x) / 86400.0 + 2440588
monthname (x) = strftime(x, '%B')
dayname (x) = strftime(x, '%A')
to_char (x, f) = pellucid_to_char(x, f)
strptime (s, f) = pellucid_strptime(s, pellucid_formats(f))
try_strptime (s, f) = pellucid_try_strptime(s, pellucid_formats(f))
pellucid_utc (x) = arrow_cast(x, 'Timestamp(Microsecond, Some("+00:00"))')
now, get_current_timestamp, transaction_timestamp (  ) = CAST(pellucid_utc(now()) AS TIMESTAMPTZ)
last_day (x) = CAST(date_trunc('month', CAST(x AS DATE)) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)
date_add (d, i) = d + i
epoch_us (x) = pellucid_micros(x)
epoch_ns (x) = pellucid_micros(x) * 1000
to_timestamp (x) = pellucid_to_timestamp(x)
epoch_ms (x) = pellucid_epoch_ms(x)
make_timestamp (micros) = pellucid_moment(micros)
make_timestamp_ms (millis) = pellucid_moment(millis * 1000)
age (x) = age(CAST(current_date() AS TIMESTAMP), x)
time_bucket (width, x) = pellucid_bucket(width, x)
time_bucket (width, x, origin) = pellucid_bucket(width, x, origin)
today (  ) = current_date()
ago (i) = now() - i
days_in_month (x) = date_part('day', last_day(x))
get_current_time, current_localtime (  ) = current_time()
current_localtimestamp (  ) = CAST(now() AS TIMESTAMP)
make_timestamp_ns (n) = arrow_cast(CAST(n AS BIGINT), 'Timestamp(Nanosecond, None)')
to_millennia (n) = pellucid_interval('millennium', n)
to_centuries (n) = pellucid_interval('century', n)
to_decades (n) = pellucid_interval('decade', n)
to_years (n) = pellucid_interval('year', n)
to_quarters (n) = pellucid_interval('quarter', n)
to_months (n) = pellucid_interval('month', n)
to_weeks (n) = pellucid_interval('week', n)
to_days (n) = pellucid_interval('day', n)
to_hours (n) = pellucid_interval('hour', n)
to_minutes (n) = pellucid_interval('minute', n)
to_seconds (n) = pellucid_interval('second', n)
to_milliseconds (n) = pellucid_interval('millisecond', n)
to_microseconds (n) = pellucid_interval('microsecond', n)

# Text
ucase (s) = upper(s)
lcase (s) = lower(s)
strlen (s) = octet_length(s)
prefix (s, start) = starts_with(s, start)
suffix (s, end_) = ends_with(s, end_)
editdist3 (a, b) = levenshtein(a, b)
length_grapheme (s) = character_length(s)
sha256 (s) = encode(sha256(s), 'hex')
base64, to_base64 (b) = encode(b, 'base64pad')
from_base64 (s) = decode(s, 'base64pad')
encode (s) = arrow_cast(CAST(s AS VARCHAR), 'Binary')
decode (b) = arrow_cast(b, 'Utf8')
hex, to_hex (x) = pellucid_hex(x)
unhex, from_hex (s) = decode(s, 'hex')
regexp_split_to_table (s, p) = unnest(regexp_split_to_array(s, p))
glob (s, p) = pellucid_glob(s, p)
substring_grapheme (s, a) = substr(s, a)
substring_grapheme (s, a, n) = substr(s, a, n)

# Numbers
sign (x) = CAST(signum(x) AS TINYINT)
pow, power (x, y) = power(CAST(x AS DOUBLE), CAST(y AS DOUBLE))
fdiv (x, y) = floor(CAST(x AS DOUBLE) / CAST(y AS DOUBLE))
fmod (x, y) = CAST(x AS DOUBLE) % CAST(y AS DOUBLE)
mod (x, y) = x % y
add (x, y) = x + y
subtract (x, y) = x - y
multiply (x, y) = x * y
divide (x, y) = pellucid_quotient(x, y)
xor (x, y) = x XOR y
even (x) = signum(CAST(x AS DOUBLE)) * ceil(abs(CAST(x AS DOUBLE)) / 2.0) * 2.0
ceiling (x) = ceil(x)
round_even, roundbankers (x, n) = CASE WHEN (abs(CAST(x AS DOUBLE)) * power(10.0, n + 1)) % 10.0 = 5.0 THEN round(CAST(x AS DOUBLE) / 2.0, n) * 2.0 ELSE round(CAST(x AS DOUBLE), n) END
isinf (x) = abs(CAST(x AS DOUBLE)) = CAST('inf' AS DOUBLE)
isfinite (x) = abs(CAST(x AS DOUBLE)) < CAST('inf' AS DOUBLE)

sqrt (x) = pellucid_sqrt(x)
ln (x) = pellucid_ln(x)
log2 (x) = pellucid_log2(x)
log10, log (x) = pellucid_log10(x)
log (b, x) = pellucid_ln(x) / pellucid_ln(b)

# Conditions
if, iff (c, yes, no) = CASE WHEN c THEN yes ELSE no END

# Lists, structs and maps
list_element (l, i) = array_element(l, i)
list_extract, array_extract (l, i) = l[i]
list_slice, array_slice (l, a, b) = l[a:b]
list_first (l) = l[1]
list_last (l) = l[-1]
list_unique, array_unique (l) = cardinality(array_distinct(array_compact(l)))
list_distinct, array_distinct (l) = array_distinct(array_compact(l))
list_sort, array_sort (l) = array_sort(l, 'ASC', 'NULLS LAST')
list_sort, array_sort (l, direction) = array_sort(l, upper(direction), 'NULLS LAST')
list_sort, array_sort (l, direction, nulls) = array_sort(l, upper(direction), upper(nulls))
list_reverse_sort, array_reverse_sort (l) = array_sort(l, 'DESC', 'NULLS LAST')
map_contains, map_contains_key (m, k) = array_has(map_keys(m), k)
map_contains_value (m, v) = array_has(map_values(m), v)
map_extract_value (m, k) = m[k]
list_dot_product, list_inner_product, array_dot_product, array_inner_product (a, b) = inner_product(a, b)
list_negative_inner_product, list_negative_dot_product (a, b) = - inner_product(a, b)
array_negative_inner_product, array_negative_dot_product (a, b) = - inner_product(a, b)
list_cosine_distance, array_cosine_distance (a, b) = cosine_distance(a, b)
list_cosine_similarity, array_cosine_similarity (a, b) = 1.0 - cosine_distance(a, b)
list_sem (l) = list_aggregate(l, 'stddev_pop') / pellucid_sqrt(list_aggregate(l, 'count'))
map_contains_entry (m, k, v) = coalesce(m[k] = v, false)
generate_subscripts (l, dimension) = unnest(generate_series(1, array_length(l, dimension)))
array_to_string_comma_default (l) = array_to_string(l, ',')

# The session
current_database, current_catalog (  ) = 'memory'
current_schema (  ) = 'main'
current_schemas (implicit) = CASE WHEN implicit IS NOT NULL THEN make_array('main') END

# JSON
json_array () = CAST('[]' AS JSON)
json_object () = CAST('{}' AS JSON)

# Aggregates
json_group_array (x) = pellucid_json_group(array_agg(pellucid_json_item(x)), '[]')
json_group_object (k, v) = pellucid_json_group(array_agg(pellucid_json_member(k, v)), '{}')
json_group_structure (x) = json_extract(json_structure(pellucid_json_group(array_agg(pellucid_json_item(x)), '[]')), 0)
list (x) = array_agg(x)
group_concat, listagg, string_agg (x) = CAST(string_agg(x, ',') AS VARCHAR)
group_concat, listagg, string_agg (x, separator) = CAST(string_agg(x, separator) AS VARCHAR)
first, arbitrary (x) = first_value(x)
last (x) = last_value(x)
count_if, countif (c) = sum(CASE WHEN c THEN 1 ELSE 0 END)
approx_count_distinct (x) = approx_distinct(x)
approx_quantile (x, q) = approx_percentile_cont(x, q)
variance (x) = var_samp(x)
geomean, geometric_mean (x) = exp(avg(pellucid_ln(x)))
sem (x) = stddev_pop(x) / pellucid_sqrt(count(x))
favg, mean (x) = avg(x)
weighted_avg, wavg (x, w) = sum(x * w) / sum(CASE WHEN x IS NOT NULL THEN w ELSE 0 END)
fsum, sumkahan, kahan_sum (x) = sum(CAST(x AS DOUBLE))
max (x, n) = array_slice(array_agg(x ORDER BY x DESC NULLS LAST) FILTER (WHERE x IS NOT NULL), 1, n)
min (x, n) = array_slice(array_agg(x ORDER BY x ASC NULLS LAST) FILTER (WHERE x IS NOT NULL), 1, n)
arg_max, max_by, argmax (x, y, n) = array_slice(array_agg(x ORDER BY y DESC NULLS LAST) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL), 1, n)
arg_min, min_by, argmin (x, y, n) = array_slice(array_agg(x ORDER BY y ASC NULLS LAST) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL), 1, n)
"#;
