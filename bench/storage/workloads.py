"""The paper's four workloads (CLOUD '16, §IV-D), as Pellucid's commands and as requests to the Spark session.

Word count reads, DFSIO writes, five TPC-DS queries read some columns of some tables, and k-means reads its input once and
then works in memory (the paper used MLlib's decision tree; the cached input is what matters).
"""

import shlex
from dataclasses import dataclass

from bench.storage import data
from bench.storage.rig import Place

# DFSIO: bytes of a record, number of records, and Spark's tasks.
RECORD, RECORDS, TASKS = 1000, 96_000, 8
ITERATIONS = 20
# For predictions from a probe: copies of the text that are read, and multiples of the records that are written.
LARGE = {"word count": 8, "DFSIO": 4}

WORD_COUNT = (
    "SELECT word, count(*) AS n FROM (SELECT unnest(string_to_array(line, ' ')) AS word FROM {text}) w GROUP BY word ORDER BY n DESC, word LIMIT 10"
)
# TPC-DS 3, 7, 42, 52 and 55: the paper's "simple queries", with the benchmark's default parameters.
TPCDS = (
    """SELECT d_year, i_brand_id, i_brand, sum(ss_ext_sales_price) AS s FROM date_dim, store_sales, item
    WHERE d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk AND i_manufact_id = 128 AND d_moy = 11
    GROUP BY d_year, i_brand, i_brand_id ORDER BY d_year, s DESC, i_brand_id LIMIT 100""",
    """SELECT i_item_id, avg(ss_quantity) AS a1, avg(ss_list_price) AS a2, avg(ss_coupon_amt) AS a3, avg(ss_sales_price) AS a4
    FROM store_sales, customer_demographics, date_dim, item, promotion
    WHERE ss_sold_date_sk = d_date_sk AND ss_item_sk = i_item_sk AND ss_cdemo_sk = cd_demo_sk AND ss_promo_sk = p_promo_sk
    AND cd_gender = 'M' AND cd_marital_status = 'S' AND cd_education_status = 'College'
    AND (p_channel_email = 'N' OR p_channel_event = 'N') AND d_year = 2000 GROUP BY i_item_id ORDER BY i_item_id LIMIT 100""",
    """SELECT d_year, i_category_id, i_category, sum(ss_ext_sales_price) AS s FROM date_dim, store_sales, item
    WHERE d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk AND i_manager_id = 1 AND d_moy = 11 AND d_year = 2000
    GROUP BY d_year, i_category_id, i_category ORDER BY s DESC, d_year, i_category_id, i_category LIMIT 100""",
    """SELECT d_year, i_brand_id, i_brand, sum(ss_ext_sales_price) AS s FROM date_dim, store_sales, item
    WHERE d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk AND i_manager_id = 1 AND d_moy = 11 AND d_year = 2000
    GROUP BY d_year, i_brand, i_brand_id ORDER BY d_year, s DESC, i_brand_id LIMIT 100""",
    """SELECT i_brand_id, i_brand, sum(ss_ext_sales_price) AS s FROM date_dim, store_sales, item
    WHERE d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk AND i_manager_id = 28 AND d_moy = 11 AND d_year = 1999
    GROUP BY i_brand, i_brand_id ORDER BY s DESC, i_brand_id LIMIT 100""",
)


# Compositions to which S3A cannot write, with the reason. The matrix and the commits leave these writes out.
NO_WRITES_BY_SPARK = {
    "S3": "s3s-fs answers 500 when S3A requests a folder as an object, as it does before each write",
}


@dataclass(frozen=True)
class Workload:
    """One of the four workloads; `way` is the direction of I/O whose rank by path is compared."""

    name: str
    way: str | None


WORKLOADS = (Workload("word count", "read"), Workload("TPC-DS", "read"), Workload("DFSIO", "write"), Workload("k-means", None))


def command(workload: Workload, place: Place, trace: str, text: str = "text", times_as_large: int = 1, number: int = 0) -> list[str]:
    """Returns Pellucid's command. `text` is the word count's folder, `times_as_large` DFSIO's multiple, `number` TPC-DS's query."""
    if workload.name == "word count":
        query = WORD_COUNT.format(text="lines")
        return ["sql", "--quiet", "--format", "csv", "--trace", trace, "--table", f"lines={place.url}/{text}/", query]
    if workload.name == "TPC-DS":
        tables = [part for name in data.TABLES for part in ("--table", f"{name}={place.url}/{name}/")]
        return ["sql", "--quiet", "--format", "csv", "--trace", trace, *tables, TPCDS[number]]
    if workload.name == "DFSIO":
        records = f"SELECT repeat('x', {RECORD - 1}) AS line FROM range({RECORDS * times_as_large})"
        copy = f"COPY ({records}) TO '{place.url}/written.csv' STORED AS CSV"
        return ["sql", "--quiet", "--trace", trace, copy]
    centers = str(data.home() / "centers.csv")
    options = ["--init", centers, "--iterations", str(ITERATIONS), "--tolerance", "0", "--json", "--trace", trace]
    return ["iterate", "kmeans", f"{place.url}/points/", *options]


def spark_request(workload: Workload, place: Place) -> dict:
    """Returns the request to the Spark session (`session.py`), with file names, since not every store has folders."""
    root = place.spark_url
    files = lambda folder: [f"{root}/{path}" for path in place.files if path.startswith(f"{folder}/")]
    if workload.name == "word count":
        return {"do": "word count", "text": files("text")}
    if workload.name == "TPC-DS":
        return {"do": "sql", "tables": {name: files(name) for name in data.TABLES}, "queries": TPCDS}
    if workload.name == "DFSIO":
        return {"do": "write", "to": f"{root}/written-by-spark", "record": RECORD - 1, "records": RECORDS, "tasks": TASKS}
    return {"do": "k-means", "points": files("points"), "iterations": ITERATIONS, "k": data.CENTERS}


def shown(command: list[str]) -> str:
    """Formats a command for a shell."""
    return shlex.join(["pellucid", *command])
