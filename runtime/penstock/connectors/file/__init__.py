"""Files as sources and sinks, on the local disk, on S3 and on whatever else fsspec reaches.

storage       the seam to file systems: list, stat, read a range; errors that name the path and the remedy
enumerator    finds files and makes splits of them, once or for ever
seen_files    which files were found already, and when they may be forgotten
blocks        cuts files into blocks of whole records, with byte offsets as positions; gzip, zstd and others inside
line_reader   the split reader of every format whose records are lines
source        FileSource and its builder
bucket, rolling, part_file       where a record goes, when a part ends, how parts are named
recoverable   what a store must offer so that a part survives a crash and becomes visible exactly once
local_store, s3_store, object_store     the three ways to offer it
writer, committer, sink          FileSink: writes parts, makes them visible
"""
