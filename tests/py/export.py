"""Points that were exported, read by Arrow's own library: three files say the same, with the types that were written.

`export.py ARROW PARQUET CSV ROWS`
"""

import csv
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet

TEXT = pa.dictionary(pa.int32(), pa.string())
WANTED = [
    ("time", pa.timestamp("ns", "UTC")),
    ("metric", TEXT),
    ("field", TEXT),
    ("value_float", pa.float64()),
    ("value_integer", pa.int64()),
    ("value_unsigned", pa.uint64()),
    ("value_boolean", pa.bool_()),
    ("value_string", pa.string()),
    ("tag:host", TEXT),
    ("tag:rack", TEXT),
]


def texts(table):
    """The table with texts where it has dictionaries of texts."""
    columns = [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


def shown(value):
    """A value as the CSV export writes it, nearly: doubles are compared as such."""
    return str(value).lower() if isinstance(value, bool) else value


def main():
    arrow_file, parquet_file, csv_file, rows = *sys.argv[1:4], int(sys.argv[4])
    with open(arrow_file, "rb") as stream:
        reader = pyarrow.ipc.open_stream(stream)
        batches = list(reader)
    table = pa.Table.from_batches(batches)
    table.validate(full=True)
    assert len(batches) > 1, "one batch proves little"
    assert [(field.name, field.type) for field in table.schema] == WANTED, table.schema
    assert table.num_rows == rows, table.num_rows
    file = pyarrow.parquet.ParquetFile(parquet_file)
    assert file.metadata.num_row_groups == len(batches)
    columns = file.read()
    assert columns.schema.field("time").type == pa.timestamp("ns", "UTC"), columns.schema
    assert columns.schema.field("value_unsigned").type == pa.uint64(), columns.schema
    assert texts(table).cast(columns.schema).equals(columns), "Arrow and Parquet differ"
    values = [name for name, _ in WANTED if name.startswith("value_")]
    counts = [table.num_rows - table.column(name).null_count for name in values]
    assert sum(counts) == rows and all(counts), counts
    times = pc.cast(table.column("time"), pa.int64()).to_pylist()
    table = texts(table).drop_columns(["time"]).to_pylist()
    with open(csv_file, newline="", encoding="utf-8") as lines:
        for time, row, line in zip(times, table, csv.DictReader(lines), strict=True):
            kind = line["type"]
            value = row[f"value_{kind}"]
            said = float(line["value"]) if kind == "float" else line["value"]
            given = value if kind == "float" else str(shown(value))
            assert (time, given) == (int(line["time_ns"]), said), (time, row, line)
            names = [row["metric"], row["field"], row["tag:host"] or "", row["tag:rack"] or ""]
            assert names == [line["metric"], line["field"], line["tag:host"], line["tag:rack"]], (row, line)
    print(f"{rows} rows are the same in three formats")


if __name__ == "__main__":
    main()
