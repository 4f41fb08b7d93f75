"""Prepared corpora: from files of any size to shards of packed token rows, and batches of a training from these."""
