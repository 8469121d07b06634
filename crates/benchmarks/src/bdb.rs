//! The tables of the big data benchmark (AMPLab, after Pavlo et al., SIGMOD 2009).
//!
//! `rankings`, `uservisits` and `documents` have the published columns, in lower case, as in
//! Hive. Scale 25 has the row counts of the published data set for one node, so scale 1 is
//! about 1 GB of visits and 1 GB of documents as text. The rows follow these distributions:
//!
//! | column | distribution |
//! |---|---|
//! | `pageurl` | unique per page: 28 to 82 bytes |
//! | `pagerank` | Pareto, P(rank > x) = (19.2 ÷ x)²: 3.7 % are above 100 and 0.037 % above 1000, as published |
//! | `avgduration`, `duration` | uniform, 1 to 100 |
//! | `sourceip` | uniform over the 2³² addresses |
//! | `desturl` | Zipf: the k-th most visited page has a frequency ∝ k^(−1/2), independent of its rank |
//! | `visitdate` | uniform, 1970-01-01 to 2012-12-31: queries 3A to 3C select 0.6 %, 7 % and 70 % |
//! | `adrevenue` | uniform, 0 to 1 |
//! | `useragent`, `countrycode`, `languagecode` | uniform over a list |
//! | `searchword`, words of `contents` | Zipf: the k-th of 10,000 words has a frequency ∝ k^(−3/4) |
//! | `contents` | a page of HTML: 4 to 20 paragraphs of 40 to 120 words, each with up to 3 links, distributed like `desturl` |

use super::rows::{self, RowRng};
use super::{BATCH_ROWS, Table};
use arrow::array::{ArrayRef, Date32Array, Float32Array, Int32Array, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use std::fmt::{self, Write};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// Rows at scale 1.
const PAGES: f64 = 720_000.0;
const VISITS: f64 = 6_200_000.0;
const DOCUMENTS: f64 = 145_000.0;
/// A document is about 8 kB, so a row group of this many is about 16 MiB, which suits a multitask.
const DOCUMENTS_PER_PART: u64 = 2048;
const DOCUMENTS_PER_BATCH: u64 = 256;

/// Seeds of the tables, and of page addresses and words, which several tables share.
const RANKINGS: u64 = 1;
const USERVISITS: u64 = 2;
const CONTENTS: u64 = 3;
const ADDRESS: u64 = 4;
const WORD: u64 = 5;

/// Days from 1970-01-01 to 2012-12-31.
const DAYS: u64 = 15_706;
const USER_AGENTS: [&str; 8] = [
    "Mozilla/5.0 (Windows NT 6.1; WOW64) AppleWebKit/536.5 (KHTML, like Gecko) Chrome/19.0.1084.52",
    "Mozilla/5.0 (Windows NT 6.1; rv:12.0) Gecko/20120403211507 Firefox/12.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_7_4) AppleWebKit/534.57.2 Version/5.1.7 Safari/534.57.2",
    "Mozilla/5.0 (compatible; MSIE 9.0; Windows NT 6.1; Trident/5.0)",
    "Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 5.1; Trident/4.0)",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 5_1_1 like Mac OS X) AppleWebKit/534.46 Mobile/9B206",
    "Opera/9.80 (X11; Linux x86_64; U; en) Presto/2.10.289 Version/12.00",
    "Wget/1.13.4 (linux-gnu)",
];
const COUNTRIES: [&str; 24] = [
    "ARG", "AUS", "AUT", "BEL", "BRA", "CAN", "CHE", "CHN", "DEU", "DNK", "ESP", "FIN", "FRA", "GBR", "IND",
    "ITA", "JPN", "KOR", "MEX", "NLD", "NOR", "POL", "SWE", "USA",
];
const LANGUAGES: [&str; 12] = [
    "de-DE", "en-GB", "en-US", "es-ES", "es-MX", "fr-FR", "it-IT", "ja-JP", "ko-KR", "nl-NL", "pt-BR",
    "zh-CN",
];
const WORDS: u64 = 10_000;

/// All words, most frequent first, of two to five syllables each.
static VOCABULARY: LazyLock<Vec<String>> = LazyLock::new(|| {
    let word = |number| {
        let mut rng = RowRng::new(WORD, number);
        let mut text = String::new();
        for _ in 0..rng.between(2, 5) {
            text.push(char::from(b"bcdfghklmnprstvw"[rng.below(16) as usize]));
            text.push(char::from(b"aeiou"[rng.below(5) as usize]));
        }
        text
    };
    (0..WORDS).map(word).collect()
});

/// Returns all tables, largest first, in parts of at most `part_rows` rows.
pub fn tables(scale: f64, part_rows: u64) -> Vec<Table> {
    let [pages, visits, documents] = [PAGES, VISITS, DOCUMENTS].map(|rows| ((rows * scale) as u64).max(1));
    let pages_of = Pages(pages);
    let batch_rows = BATCH_ROWS as u64;
    vec![
        rows::table(
            "documents",
            schema(&[("url", DataType::Utf8), ("contents", DataType::Utf8)]),
            documents,
            (part_rows.min(DOCUMENTS_PER_PART), DOCUMENTS_PER_BATCH),
            move |schema, numbers| make_documents(schema, pages_of, numbers),
        ),
        rows::table(
            "uservisits",
            schema(&[
                ("sourceip", DataType::Utf8),
                ("desturl", DataType::Utf8),
                ("visitdate", DataType::Date32),
                ("adrevenue", DataType::Float32),
                ("useragent", DataType::Utf8),
                ("countrycode", DataType::Utf8),
                ("languagecode", DataType::Utf8),
                ("searchword", DataType::Utf8),
                ("duration", DataType::Int32),
            ]),
            visits,
            (part_rows, batch_rows),
            move |schema, numbers| make_visits(schema, pages_of, numbers),
        ),
        rows::table(
            "rankings",
            schema(&[
                ("pageurl", DataType::Utf8),
                ("pagerank", DataType::Int32),
                ("avgduration", DataType::Int32),
            ]),
            pages,
            (part_rows, batch_rows),
            make_rankings,
        ),
    ]
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields = columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn make_rankings(schema: SchemaRef, numbers: Range<u64>) -> Result<RecordBatch, ArrowError> {
    let mut urls = StringBuilder::new();
    let (mut ranks, mut durations) = (Vec::new(), Vec::new());
    for page in numbers {
        url(&mut urls, page)?;
        urls.append_value("");
        let mut rng = RowRng::new(RANKINGS, page);
        ranks.push((19.2 / rng.share().sqrt()) as i32);
        durations.push(rng.between(1, 100) as i32);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(urls.finish()),
        Arc::new(Int32Array::from(ranks)),
        Arc::new(Int32Array::from(durations)),
    ];
    RecordBatch::try_new(schema, columns)
}

fn make_visits(schema: SchemaRef, pages: Pages, numbers: Range<u64>) -> Result<RecordBatch, ArrowError> {
    let mut texts: [StringBuilder; 6] = std::array::from_fn(|_| StringBuilder::new());
    let [ips, urls, agents, countries, languages, words] = &mut texts;
    let (mut dates, mut revenues, mut durations) = (Vec::new(), Vec::new(), Vec::new());
    for visit in numbers {
        let mut rng = RowRng::new(USERVISITS, visit);
        let [a, b, c, d] = (rng.bits() as u32).to_be_bytes();
        write!(ips, "{a}.{b}.{c}.{d}").map_err(too_long)?;
        ips.append_value("");
        url(urls, pages.visited(&mut rng))?;
        urls.append_value("");
        dates.push(rng.below(DAYS) as i32);
        revenues.push(rng.below(1 << 24) as f32 / (1 << 24) as f32);
        agents.append_value(one_of(&USER_AGENTS, &mut rng));
        countries.append_value(one_of(&COUNTRIES, &mut rng));
        languages.append_value(one_of(&LANGUAGES, &mut rng));
        words.append_value(word(&mut rng));
        durations.push(rng.between(1, 100) as i32);
    }
    let [ips, urls, agents, countries, languages, words] =
        texts.map(|mut text| -> ArrayRef { Arc::new(text.finish()) });
    let dates = Arc::new(Date32Array::from(dates));
    let revenues = Arc::new(Float32Array::from(revenues));
    let durations = Arc::new(Int32Array::from(durations));
    let columns = vec![ips, urls, dates, revenues, agents, countries, languages, words, durations];
    RecordBatch::try_new(schema, columns)
}

fn make_documents(schema: SchemaRef, pages: Pages, numbers: Range<u64>) -> Result<RecordBatch, ArrowError> {
    let mut urls = StringBuilder::new();
    let mut contents = StringBuilder::new();
    for number in numbers {
        let mut rng = RowRng::new(CONTENTS, number);
        url(&mut urls, rng.below(pages.0))?;
        urls.append_value("");
        document(&mut contents, pages, &mut rng)?;
        contents.append_value("");
    }
    let columns: Vec<ArrayRef> = vec![Arc::new(urls.finish()), Arc::new(contents.finish())];
    RecordBatch::try_new(schema, columns)
}

/// Writes a page of HTML.
fn document(text: &mut StringBuilder, pages: Pages, rng: &mut RowRng) -> Result<(), ArrowError> {
    let title = word(rng);
    writeln!(text, "<html><head><title>{title}</title></head><body><h1>{title}</h1>").map_err(too_long)?;
    for _ in 0..rng.between(4, 20) {
        text.write_str("<p>").map_err(too_long)?;
        for _ in 0..rng.between(40, 120) {
            write!(text, "{} ", word(rng)).map_err(too_long)?;
        }
        for _ in 0..rng.below(4) {
            text.write_str("<a href=\"").map_err(too_long)?;
            url(text, pages.visited(rng))?;
            write!(text, "\">{}</a> ", word(rng)).map_err(too_long)?;
        }
        text.write_str("</p>\n").map_err(too_long)?;
    }
    text.write_str("</body></html>\n").map_err(too_long)
}

/// The number of pages.
#[derive(Clone, Copy)]
struct Pages(u64);

impl Pages {
    /// RowRng a page from the distribution of visits and links.
    fn visited(self, rng: &mut RowRng) -> u64 {
        // Multiplying by a prime that does not divide the number of pages permutes the pages,
        // so that popularity does not follow the row order of `rankings`.
        let popular = u128::from(rng.skewed(self.0));
        (popular * 1_000_000_007 % u128::from(self.0)) as u64
    }
}

/// Writes the address of a page, which is the same in every table.
fn url(text: &mut StringBuilder, page: u64) -> Result<(), ArrowError> {
    let mut rng = RowRng::new(ADDRESS, page);
    let (host, path) = (rng.between(6, 16), rng.between(10, 54));
    text.write_str("http://").map_err(too_long)?;
    letters(text, host, &mut rng)?;
    text.write_str(".com/").map_err(too_long)?;
    letters(text, path, &mut rng)
}

fn letters(text: &mut StringBuilder, mut length: u64, rng: &mut RowRng) -> Result<(), ArrowError> {
    while length > 0 {
        // 64 bits hold 13 letters.
        let mut bits = rng.bits();
        for _ in 0..length.min(13) {
            text.write_char(char::from(b'a' + (bits % 26) as u8)).map_err(too_long)?;
            bits /= 26;
        }
        length = length.saturating_sub(13);
    }
    Ok(())
}

fn word(rng: &mut RowRng) -> &'static str {
    &VOCABULARY[rng.very_skewed(WORDS) as usize]
}

fn one_of<'a>(list: &[&'a str], rng: &mut RowRng) -> &'a str {
    list[rng.below(list.len() as u64) as usize]
}

fn too_long(_: fmt::Error) -> ArrowError {
    ArrowError::ComputeError("the text of a batch is too long".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::{Date32Type, Int32Type};
    use std::collections::{BTreeMap, BTreeSet};

    fn rows(name: &str, scale: f64) -> RecordBatch {
        let table = tables(scale, 1000).into_iter().find(|table| table.name == name).unwrap();
        let batches: Vec<_> =
            (0..table.parts).flat_map(|part| (table.part)(part)).collect::<Result<_, _>>().unwrap();
        arrow::compute::concat_batches(&table.schema, &batches).unwrap()
    }

    #[test]
    fn pages_have_unique_addresses_and_the_published_ranks() {
        let rankings = rows("rankings", 0.1);
        assert_eq!(rankings.num_rows(), 72_000);
        let urls: BTreeSet<_> = rankings.column(0).as_string::<i32>().iter().flatten().collect();
        assert_eq!(urls.len(), 72_000);
        let above = |limit| {
            let ranks = rankings.column(1).as_primitive::<Int32Type>();
            ranks.values().iter().filter(|rank| **rank > limit).count() as f64 / 72_000.0
        };
        assert!((above(100) - 0.037).abs() < 0.004, "{}", above(100));
        assert!((above(1000) - 0.00037).abs() < 0.0003, "{}", above(1000));
        assert_eq!(above(10), 1.0);
    }

    #[test]
    fn visits_are_skewed_over_pages_and_uniform_over_days() {
        let urls = rows("rankings", 0.01);
        let urls: BTreeSet<_> = urls.column(0).as_string::<i32>().iter().flatten().collect();
        let visits = rows("uservisits", 0.01);
        let mut counts = BTreeMap::new();
        for url in visits.column(1).as_string::<i32>().iter().flatten() {
            assert!(urls.contains(url), "{url} is not a page");
            *counts.entry(url).or_insert(0) += 1;
        }
        // Of 62,000 visits to 7,200 pages, the most visited page has 1 in √7200, and most have a few.
        let max = *counts.values().max().unwrap();
        assert!((500..1000).contains(&max), "{max}");
        let days = visits.column(2).as_primitive::<Date32Type>();
        // 1980-01-01 to 1983-01-01, as in query 3B.
        let taken = days.values().iter().filter(|day| (3652..=4748).contains(*day)).count() as f64 / 62_000.0;
        assert!((taken - 0.07).abs() < 0.005, "{taken}");
        assert!(days.values().iter().all(|day| (0..15_706).contains(day)));
    }

    #[test]
    fn documents_link_to_pages() {
        let urls = rows("rankings", 0.01);
        let urls: BTreeSet<_> = urls.column(0).as_string::<i32>().iter().flatten().collect();
        let documents = rows("documents", 0.01);
        assert_eq!(documents.num_rows(), 1450);
        let (mut links, mut bytes) = (0, 0);
        for contents in documents.column(1).as_string::<i32>().iter().flatten() {
            assert!(contents.starts_with("<html>") && contents.ends_with("</html>\n"));
            bytes += contents.len();
            for rest in contents.split("href=\"").skip(1) {
                let link = rest.split('"').next().unwrap();
                assert!(urls.contains(link), "{link} is not a page");
                links += 1;
            }
        }
        // 12 paragraphs of 1.5 links on average.
        let mean = links as f64 / 1450.0;
        assert!((mean - 18.0).abs() < 1.0, "{mean}");
        assert!((7000..9000).contains(&(bytes / 1450)), "{}", bytes / 1450);
    }
}
