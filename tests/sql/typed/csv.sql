-- Dialects and options of CSV files. harness/sql/typed.py describes the format.

-- case: csv-01
SELECT * FROM 'products.csv'

-- case: csv-02 (reserved)
FROM 'products.csv' WHERE Price > 5 ORDER BY ProductID

-- case: csv-03
SELECT "Product Name", Price FROM 'products.csv' WHERE Category = 'Tea' ORDER BY ProductID

-- case: csv-04
SELECT category, avg(price) AS p FROM 'products.csv' GROUP BY category ORDER BY category

-- case: csv-05
SELECT * FROM read_csv('products.csv') ORDER BY ProductID LIMIT 2

-- case: csv-06 (reserved)
FROM 'Semicolons.csv'

-- case: csv-07
SELECT Station, avg(TempC) AS t FROM 'Semicolons.csv' GROUP BY Station ORDER BY Station

-- case: csv-08
SELECT * FROM read_csv('Semicolons.csv', sep = ';', header = true) WHERE TempC < 0

-- case: csv-09 (reserved)
SELECT * FROM read_csv('german.csv', delim = ';', decimal_separator = ',', dateformat = '%d.%m.%Y')

-- case: csv-10 (reserved)
SELECT sum(Betrag) AS s FROM read_csv('german.csv', decimal_separator = ',')

-- case: csv-11 (reserved)
FROM 'tabs.tsv'

-- case: csv-12
SELECT Host, sum(Bytes) AS b FROM read_csv('tabs.tsv', delim = '\t') GROUP BY Host ORDER BY Host

-- case: csv-13
FROM 'pipes.csv'

-- case: csv-14
SELECT * FROM read_csv('pipes.txt', delim = '|', header = true)

-- case: csv-15
FROM 'no_header.csv'

-- case: csv-16 (reserved)
SELECT * FROM read_csv('no_header.csv', header = false)

-- case: csv-17
SELECT * FROM read_csv('no_header.csv', header = false, names = ['Day', 'City', 'Temp'])

-- case: csv-18
SELECT City, max(Temp) AS m FROM read_csv('no_header.csv', columns = {'Day': 'DATE', 'City': 'VARCHAR', 'Temp': 'DOUBLE'}) GROUP BY City ORDER BY City

-- case: csv-19 (reserved)
FROM 'numbers_only.csv'

-- case: csv-20
FROM 'quoted.csv'

-- case: csv-21
FROM read_csv('single_quotes.csv', quote = '''')

-- case: csv-22 (reserved)
FROM read_csv('backslash.csv', escape = '\')

-- case: csv-23
SELECT count(*) AS n, sum(v) AS s FROM 'late_decimal.csv'

-- case: csv-24
SELECT count(*) AS n, max(id) AS m FROM read_csv('late_word.csv', sample_size = -1)

-- case: csv-25
SELECT count(*) AS n FROM read_csv('late_word.csv', types = {'v': 'VARCHAR'})

-- case: csv-26
SELECT count(*) AS n, count(v) AS good FROM read_csv('late_word.csv', nullstr = 'none')

-- case: csv-27
FROM 'bad_values.csv'

-- case: csv-28 (reserved)
-- data error: unknown
SELECT sum(Age) AS s FROM read_csv('bad_values.csv', types = {'Age': 'INTEGER'})

-- case: csv-29
SELECT * FROM read_csv('bad_values.csv', types = {'Age': 'INTEGER'}, ignore_errors = true)

-- case: csv-30
SELECT Id, try_cast(Age AS INT) AS Age, try_cast(Joined AS DATE) AS Joined FROM 'bad_values.csv' ORDER BY Id

-- case: csv-31
FROM read_csv('ragged.csv', null_padding = true)

-- case: csv-32
SELECT * FROM read_csv('too_many.csv', ignore_errors = true, delim = ',', columns = {'a': 'INT', 'b': 'INT'})

-- case: csv-33
FROM read_csv('comments.csv', comment = '#')

-- case: csv-34
FROM read_csv('preamble.csv', skip = 3)

-- case: csv-35 (reserved)
FROM 'bom.csv'

-- case: csv-36
FROM 'crlf.csv' ORDER BY Name

-- case: csv-37
SELECT Name, Points + 1 AS p FROM 'crlf.csv' WHERE Points IS NOT NULL ORDER BY Name

-- case: csv-38
SELECT avg(Height) AS h FROM read_csv('nulls.csv', nullstr = ['NA', '-'])

-- case: csv-39 (reserved)
SELECT Invoice, Due, Paid FROM 'eu_dates.csv' ORDER BY Invoice

-- case: csv-40 (reserved)
SELECT * FROM read_csv('eu_dates.csv', dateformat = '%d/%m/%Y', timestampformat = '%d/%m/%Y %H:%M')

-- case: csv-41
SELECT Event, Stamp, Zoned FROM 'timestamps.csv' ORDER BY Stamp

-- case: csv-42 (reserved)
SELECT "First Name", "Total (EUR)" FROM 'spaces.csv' ORDER BY 1

-- case: csv-43
FROM read_csv('spaces.csv', normalize_names = true)

-- case: csv-44
FROM 'duplicate_names.csv'

-- case: csv-45
SELECT city, population FROM 'mixed_case.csv' WHERE iscapital

-- case: csv-46 (reserved)
FROM 'ids.csv'

-- case: csv-47 (reserved)
SELECT Code, Zip FROM read_csv('ids.csv', all_varchar = true)

-- case: csv-48
FROM 'big_numbers.csv'

-- case: csv-49
FROM 'booleans.csv' WHERE Active

-- case: csv-50 (reserved)
FROM 'only_header.csv'

-- case: csv-51 (reserved)
FROM 'one_column.csv'

-- case: csv-52
SELECT sum(Cost) AS s FROM read_csv('thousands.csv', thousands = ',')

-- case: csv-53
SELECT Task, Start, Length FROM 'times.csv' ORDER BY Start

-- case: csv-54
SELECT * FROM read_csv('latin1.csv', encoding = 'latin-1')

-- case: csv-55 (reserved)
FROM 'empty_lines.csv'
