"""S3 servers."""

from __future__ import annotations

from penstock.common.config.option import flag_option, text_option

S3_ENDPOINT = text_option("s3.endpoint", None, "URL of an S3 server other than Amazon's.")
S3_ACCESS_KEY = text_option(
    "s3.access-key", None, "Access key. Not set: the credentials of the environment or the identity of the pod."
)
S3_SECRET_KEY = text_option("s3.secret-key", None, "Secret key that belongs to s3.access-key.")
S3_PATH_STYLE = flag_option("s3.path.style.access", False, "Put the bucket into the path instead of the host name.")
S3_REGION = text_option("s3.endpoint.region", None, "Region to sign requests for.")
