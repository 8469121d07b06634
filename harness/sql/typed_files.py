"""Small files for the SQL of `tests/sql/typed`: tables as an analyst has them, and text files as other programs write them.

Everything is written out or computed without randomness, so that each run gets the same files. Names are of mixed case,
and the tables have NULLs, dates, timestamps, decimals, lists and structs.
"""

import gzip
import json
from pathlib import Path

import duckdb

# Parquet files that cases may use by name, with the query that makes each.
TABLES = {
    "customers": """SELECT * FROM (VALUES
        (1, 'Ada Lovelace', 'London', 'GB', DATE '2021-03-14', 'ada@example.com', {'Street': '12 Mill Lane', 'Zip': 'N1 9GU'}, 1200.50::DECIMAL(10,2)),
        (2, 'Bo Chen', 'Lyon', 'FR', DATE '2021-07-01', 'bo.chen@example.fr', {'Street': '3 rue Neuve', 'Zip': '69001'}, 0.00::DECIMAL(10,2)),
        (3, 'Chloé Martin', 'Lyon', 'FR', DATE '2022-01-31', NULL, {'Street': '8 quai Est', 'Zip': '69002'}, 75.25::DECIMAL(10,2)),
        (4, 'Dan Ott', 'Berlin', 'DE', DATE '2022-02-28', 'dan@example.de', NULL, NULL),
        (5, 'Eva Ott', 'Berlin', 'DE', DATE '2022-12-31', 'eva@example.de', {'Street': 'Am Ring 5', 'Zip': '10115'}, 310.00::DECIMAL(10,2)),
        (6, 'Finn O''Brien', 'Dublin', 'IE', DATE '2023-05-05', 'FINN@EXAMPLE.IE', {'Street': '1 Quay', 'Zip': NULL}, 15.99::DECIMAL(10,2)),
        (7, 'Gus', NULL, NULL, NULL, '', NULL, 42.00::DECIMAL(10,2)),
        (8, 'hana sato', 'Osaka', 'JP', DATE '2024-02-29', 'hana@example.jp', {'Street': '4-2 Kita', 'Zip': '530-0001'}, 990.10::DECIMAL(10,2))
        ) t(CustomerID, Name, City, Country, SignedUp, Email, Address, Balance)""",
    "orders": """SELECT (1000 + i)::INTEGER AS OrderID, CASE WHEN i % 10 = 9 THEN NULL WHEN i % 7 = 0 THEN 99 ELSE 1 + i * 5 % 7 END::INTEGER AS CustomerID,
        DATE '2024-01-05' + (i * 11)::INTEGER AS OrderDate,
        CASE WHEN i % 6 = 5 THEN NULL ELSE TIMESTAMP '2024-01-06 08:15:00' + INTERVAL (i * 11 * 24 + i % 5) HOUR END AS ShippedAt,
        ['new', 'paid', 'shipped', 'returned'][1 + i % 4] AS Status,
        CASE WHEN i % 8 = 3 THEN NULL ELSE (1995 + i * 1337 % 9000)::DECIMAL(10, 2) / 100 END::DECIMAL(10, 2) AS Amount,
        [0.0, 0.05, 0.1, NULL][1 + i % 4]::DOUBLE AS Discount, (1 + i * 3 % 5)::INTEGER AS Items, i % 3 = 0 AS Express,
        CASE WHEN i % 5 = 4 THEN NULL WHEN i % 5 = 3 THEN []::VARCHAR[] ELSE [['gift', 'rush'][1 + i % 2], 'web'][1:1 + i % 3] END AS Tags
        FROM range(30) r(i) ORDER BY i""",
    "employees": """SELECT * FROM (VALUES
        (1, 'Maya', NULL, 'Board', 180000, DATE '2015-01-12'), (2, 'Noah', 1, 'Sales', 96000, DATE '2016-06-01'),
        (3, 'Olga', 1, 'Tech', 120000, DATE '2016-09-15'), (4, 'Pia', 2, 'Sales', 61000, DATE '2019-02-01'),
        (5, 'Quinn', 2, 'Sales', 61000, DATE '2020-04-20'), (6, 'Raj', 3, 'Tech', 99000, DATE '2018-11-05'),
        (7, 'Sara', 3, 'Tech', 87500, DATE '2021-08-30'), (8, 'Tom', 6, 'Tech', 64000, DATE '2023-01-02'),
        (9, 'Uma', NULL, NULL, 50000, NULL)) t(Id, Name, ManagerId, Department, Salary, HiredOn)""",
    "sales": """SELECT ['North', 'South', 'East'][1 + (i // 8)::INT] AS Region, (2023 + (i // 4) % 2)::INTEGER AS Year, 'Q' || (1 + i % 4) AS Quarter,
        ['Tea', 'Coffee'][1 + i % 2] AS Product, CASE WHEN i = 13 THEN NULL ELSE 10 + i * 7 % 23 END::INTEGER AS Units,
        (100 + i * 31 % 400 + i / 4.0)::DECIMAL(12, 2) AS Revenue FROM range(24) r(i) ORDER BY i""",
    "trades": """SELECT ['ACME', 'ZETA'][1 + i % 2] AS Symbol, TIMESTAMP '2024-03-01 09:30:00' + INTERVAL (i * 37) SECOND AS Time, (i % 4 + 1) * 100 AS Qty
        FROM range(12) r(i) ORDER BY i""",
    "quotes": """SELECT ['ACME', 'ZETA'][1 + i % 2] AS Symbol, TIMESTAMP '2024-03-01 09:30:05' + INTERVAL (i * 50) SECOND AS Time, (100 + i * 3 % 7 + i / 8.0)::DOUBLE AS Price
        FROM range(10) r(i) ORDER BY i""",
    "sensors": """SELECT ('s' || (1 + i % 3)) AS Sensor, TIMESTAMPTZ '2024-03-30 22:00:00+00' + INTERVAL (i * 25) MINUTE AS ReadAt,
        CASE WHEN i % 9 = 4 THEN NULL ELSE 20 + sin(i) * 5 END AS Value, CASE WHEN i % 4 = 0 THEN 'ok' WHEN i % 4 = 1 THEN 'OK' ELSE 'low battery' END AS State
        FROM range(24) r(i) ORDER BY i""",
    "baskets": """SELECT * FROM (VALUES
        (1, ['apple', 'pear', 'apple'], [1, 2, 3], {'City': 'Lyon', 'Geo': {'Lat': 45.75, 'Lon': 4.85}}, MAP {'apple': 2, 'pear': 1}),
        (2, ['fig'], [10], {'City': 'Berlin', 'Geo': {'Lat': 52.52, 'Lon': 13.4}}, MAP {'fig': 1}),
        (3, [], [], {'City': NULL, 'Geo': NULL}, MAP {}),
        (4, NULL, NULL, NULL, NULL),
        (5, ['kiwi', NULL, 'pear'], [4, NULL, 6], {'City': 'Osaka', 'Geo': {'Lat': 34.69, 'Lon': 135.5}}, MAP {'kiwi': 7, 'pear': 3})
        ) t(Id, Items, Amounts, Place, Counts)""",
    "texts": """SELECT * FROM (VALUES (1, 'The quick brown fox', 'A-100/x'), (2, '  padded  ', 'B-2/yy'), (3, 'ÜBER straße', 'C-33/'), (4, '', NULL),
        (5, NULL, 'a-7/Z'), (6, 'comma, separated, list', 'D-404/not found'), (7, 'mail me: bob@x.org or eve@y.com', 'E-5/5'), (8, '100% sure_thing', 'F_6'))
        t(Id, Body, Code)""",
}

PRODUCTS = '''ProductID,Product Name,Price,InStock,Added,Category
1,Green Tea,4.50,true,2023-01-15,Tea
2,"Coffee, ground",7.25,true,2023-02-01,Coffee
3,"Mug ""Large""",12.00,false,2023-02-28,Home
4,Black Tea,3.95,true,,Tea
5,Teapot,29.90,,2023-11-05,Home
6,Espresso,8.10,true,2024-02-29,Coffee
'''

# Text files, by name.
TEXTS = {
    "products.csv": PRODUCTS,
    "Semicolons.csv": "Station;Day;TempC;Note\nOslo;2024-01-01;-3.5;cold\nOslo;2024-01-02;-1.0;\nRome;2024-01-01;11.2;mild, dry\nRome;2024-01-02;12.8;sun\n",
    "german.csv": "Ort;Datum;Betrag\nBerlin;31.01.2024;1234,50\nBonn;01.02.2024;99,95\nKöln;29.02.2024;-7,00\n",
    "tabs.tsv": "Host\tPath\tBytes\nweb1\t/index.html\t5120\nweb2\t/about, us\t730\nweb1\t/img/a.png\t20480\n",
    "pipes.txt": "id|name|score\n1|Ann|9.5\n2|Ben|\n3|Cid|7.25\n",
    "pipes.csv": "id|name|score\n1|Ann|9.5\n2|Ben|\n3|Cid|7.25\n",
    "no_header.csv": "2024-01-01,Lyon,12.5\n2024-01-02,Lyon,14.0\n2024-01-01,Oslo,-3.0\n",
    "numbers_only.csv": "1,10,100\n2,20,200\n3,30,300\n",
    "quoted.csv": 'Id,Comment\n1,"first line\nsecond line"\n2,"said ""hi"""\n3,"a,b,c"\n4,plain\n',
    "single_quotes.csv": "Id,Title\n1,'Rock, Paper'\n2,'It''s'\n3,none\n",
    "backslash.csv": 'Id,Text\n1,"a \\"quoted\\" word"\n2,"plain"\n',
    "bad_values.csv": "Id,Age,Joined\n1,34,2024-01-01\n2,unknown,2024-01-02\n3,51,2024-13-45\n4,28,2024-01-04\n",
    "ragged.csv": "a,b,c\n1,2,3\n4,5\n6,7,8\n9\n",
    "too_many.csv": "a,b\n1,2\n3,4,5\n6,7\n",
    "comments.csv": "# exported 2024-05-01\n# source: till 4\nSku,Qty\nA1,3\nB2,5\n# end\n",
    "preamble.csv": "Report of sales\nMade on Monday\n\nRegion,Total\nNorth,100\nSouth,250\n",
    "bom.csv": "\ufeffKey,Wert\na,1\nb,2\n",
    "crlf.csv": "Name,Points\r\nann,3\r\nben,\r\ncid,12\r\n",
    "nulls.csv": "Id,Height,Eye\n1,NA,blue\n2,1.80,NA\n3,-,green\n4,1.65,\n",
    "na.csv": "Id,Height,Eye\n1,NA,blue\n2,1.80,NA\n3,1.65,\n",
    "eu_dates.csv": "Invoice,Due,Paid\nI-1,31/01/2024,15/02/2024 14:30\nI-2,28/02/2024,01/03/2024 09:05\nI-3,05/03/2024,\n",
    "timestamps.csv": "Event,Stamp,Zoned\nstart,2024-03-01 08:00:00,2024-03-01T08:00:00+01:00\nstop,2024-03-01 17:45:30.250,2024-03-01T17:45:30+01:00\n",
    "spaces.csv": "First Name, Last Name ,Total (EUR)\nAnn,Lee,10.5\nBen,Moss,20\n",
    "duplicate_names.csv": "id,value,value\n1,a,b\n2,c,d\n",
    "mixed_case.csv": "CITY,Population,isCapital\nOslo,709000,true\nBergen,291000,false\n",
    "ids.csv": "Code,Zip,Phone\n007,01234,+49 30 1\n012,99999,+33 4 2\n",
    "big_numbers.csv": "n,amount\n9223372036854775807,0.1\n3000000000,12345678901234.56\n-5,1e3\n",
    "booleans.csv": "Name,Active,Flag\nann,true,yes\nben,False,no\ncid,TRUE,yes\n",
    "empty_lines.csv": "a,b\n1,x\n\n2,y\n\n",
    "only_header.csv": "Id,Name\n",
    "empty.csv": "",
    "one_column.csv": "City\nLyon\nOslo\nRome\n",
    "thousands.csv": 'Item,Cost\nchair,"1,250.00"\nlamp,"80.50"\n',
    "people.csv": "Name,Born,City\nAnn,1990-05-01,Lyon\nBen,1985-12-31,Oslo\nCid,2001-07-14,Lyon\nDee,,Rome\n",
    "wide_sales.csv": "Region,Jan,Feb,Mar\nNorth,10,20,30\nSouth,5,,15\nEast,7,8,9\n",
    "times.csv": "Task,Start,Length\nlunch,12:30:00,45\nwalk,18:05:10,30\n",
    "events.json": "".join(
        json.dumps(row) + "\n"
        for row in (
            {"id": 1, "user": {"name": "ann", "tags": ["a", "b"]}, "ts": "2024-01-01T10:00:00", "kind": "click", "value": 1.5},
            {"id": 2, "user": {"name": "ben", "tags": []}, "ts": "2024-01-01T10:05:00", "kind": "view", "value": None},
            {"id": 3, "user": {"name": "ann", "tags": ["c"]}, "ts": "2024-01-02T09:00:00", "kind": "click", "value": 3, "extra": True},
            {"id": 4, "user": None, "ts": "2024-01-03T12:00:00", "kind": "buy", "value": 20.25},
        )
    ),
    "users.json": json.dumps(
        [
            {"Zeta": 1, "Name": "Ann", "Age": 31, "Address": {"City": "Lyon", "Zip": "69001"}, "Born": "1993-02-01"},
            {"Zeta": 2, "Name": "Ben", "Age": None, "Address": {"City": "Oslo", "Zip": "0150"}, "Born": "1988-11-30"},
            {"Zeta": 3, "Name": "Cid", "Age": 25, "Address": None, "Born": None},
        ],
        indent=2,
    ),
    "order.json": json.dumps({"order": 7, "lines": [{"sku": "A1", "qty": 2}, {"sku": "B2", "qty": 1}], "total": 31.5}),
    "logs/2024-01.csv": "Day,Level,Message\n2024-01-03,INFO,start\n2024-01-09,ERROR,disk full\n",
    "logs/2024-02.csv": "Day,Level,Message\n2024-02-01,INFO,start\n2024-02-11,WARN,slow\n2024-02-12,ERROR,timeout\n",
    "logs/2024-03.csv": "Day,Level,Message\n2024-03-05,INFO,stop\n",
    "logs/readme.txt": "not a table\n",
    "by_name/a.csv": "id,name\n1,Ann\n2,Ben\n",
    "by_name/b.csv": "name,id,city\nCid,3,Lyon\n",
    "shops/Country=DE/sales.csv": "Shop,Total\nB1,10\nB2,20\n",
    "shops/Country=FR/sales.csv": "Shop,Total\nL1,30\n",
    "script.sql": "SELECT 1 AS one;\n",
}  # fmt: skip


def make(folder: Path) -> None:
    """Writes all files into a folder."""
    duck = duckdb.connect(config={"threads": 1})
    duck.execute("SET TimeZone = 'UTC'")
    for name, query in TABLES.items():
        duck.execute(f"COPY ({query}) TO '{folder / name}.parquet' (FORMAT parquet)")
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")
    (folder / "latin1.csv").write_bytes("Name,Ville\nZoé,Orléans\n".encode("latin-1"))
    for name, text in (("products.csv.gz", PRODUCTS), ("events.json.gz", TEXTS["events.json"])):
        (folder / name).write_bytes(gzip.compress(text.encode(), mtime=0))
    # Types that only later rows show: a decimal after 900 whole numbers, and a word after 25,000 numbers.
    late = [f"{i},{i * 2}" if i != 900 else "900,0.5" for i in range(1, 1001)]
    (folder / "late_decimal.csv").write_text("\n".join(["id,v", *late]) + "\n")
    word = [f"{i},{i % 7}" if i != 25_000 else "25000,none" for i in range(1, 25_101)]
    (folder / "late_word.csv").write_text("\n".join(["id,v", *word]) + "\n")
    (folder / "parts").mkdir()
    for part in range(3):
        duck.execute(
            f"COPY (SELECT i AS Id, 'p{part}' AS Part, i * 1.5 AS X FROM range({part * 4}, {part * 4 + 4}) r(i)) TO '{folder}/parts/part-{part}.parquet'"
        )
    for year, month in ((2023, 1), (2023, 2), (2023, 12), (2024, 1), (2024, 10)):
        to = folder / "hive" / f"Year={year}" / f"Month={month}"
        to.mkdir(parents=True)
        duck.execute(
            f"COPY (SELECT {year} * 100 + {month} + i AS Id, ({month} * 10 + i)::DOUBLE AS Amount FROM range(2) r(i)) TO '{to}/data.parquet'"
        )
    (folder / "evolving").mkdir()
    duck.execute(f"COPY (SELECT 1 AS Id, 'old' AS Label) TO '{folder}/evolving/v1.parquet'")
    duck.execute(f"COPY (SELECT 'new' AS Label, 2::BIGINT AS Id, 9.5 AS Score) TO '{folder}/evolving/v2.parquet'")
    duck.close()
