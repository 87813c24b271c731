"""Files as sources and sinks, on the local disk, on S3 and on every other store that fsspec reaches.

storage   the interface to file systems: list, stat, read a range; errors that name the path and the remedy
source    FileSource: finds files, makes splits, cuts blocks of whole records with byte offsets as positions
sink      FileSink: buckets, rolling, parts that survive a crash and become visible exactly once
"""
