"""`examples/wordcount.py`, with each word in the output partition that its line had in the input.

A slot writes to one partition only then, and a reader sees it as soon as it is committed. Otherwise the slots' records
lie mixed in all partitions, and those of a committed slot wait behind those of an open one (the last stable offset).
"""

import importlib.util
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "wordcount.py"
_spec = importlib.util.spec_from_file_location("wordcount", _EXAMPLE)
assert _spec is not None
assert _spec.loader is not None
wordcount = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(wordcount)
_words_of = wordcount.words_of


def _placed(lines: DataFrame) -> DataFrame:
    words: DataFrame = _words_of(lines)
    return words.withColumn("partition", F.get_json_object("value", "$.partition").cast("int"))


if __name__ == "__main__":
    vars(wordcount)["words_of"] = _placed
    wordcount.main()
