"""The three stages of preparing a corpus; the work of each on one shard is a function of its own, see `engines`.

`read_shard` filters the documents and notes keys and signatures of those that stay, `find_duplicates` finds the
duplicates among all, of which `decide` says what becomes, and `pack_shard` reads the documents again and writes the
token rows of those that are left. What a stage has made is a file that is whole or absent, so that an interrupted run
goes on behind it.
"""

from recipes.common.corpus.stages.comparing import DuplicatesTask, decide, find_duplicates
from recipes.common.corpus.stages.packing import pack_shard
from recipes.common.corpus.stages.reading import read_shard
from recipes.common.corpus.stages.tasks import Settings, ShardTask, do_missing, total

__all__ = [
    "DuplicatesTask",
    "Settings",
    "ShardTask",
    "decide",
    "do_missing",
    "find_duplicates",
    "pack_shard",
    "read_shard",
    "total",
]
