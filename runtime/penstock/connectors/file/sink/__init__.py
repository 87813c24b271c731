"""FileSink: writes parts, and makes each visible exactly once on the local disk, on S3 and on other stores."""
