"""What an object store's errors mean, by the clients' own classes."""

import errno
import json

import botocore.exceptions as boto
import gcsfs.retry
import google.auth.exceptions
import pytest
from s3fs.errors import translate_boto_error

from evalrun_data.store_problems import Kind, store_problem

DefaultCredentialsError: type[Exception] = google.auth.exceptions.DefaultCredentialsError
RefreshError: type[Exception] = google.auth.exceptions.RefreshError


def refused(code: str, status: int = 403, message: str = "") -> Exception:
    """Return what s3fs raises for an answer of S3."""
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = translate_boto_error(boto.ClientError(response, "PutObject"))
    assert isinstance(error, Exception)
    return error


def google_says(status: int, message: str) -> Exception:
    """Return what gcsfs raises for an answer of Google's store."""
    path = "https://storage.googleapis.com/upload/storage/v1/b/results/o"
    content = json.dumps({"error": {"code": status, "message": message}}).encode()
    with pytest.raises(Exception) as raised:
        gcsfs.retry.validate_response(status, content, path)
    return raised.value


@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        (refused("ExpiredToken", message="The provided token has expired."), Kind.REFUSED, "have expired: renew them"),
        (refused("InvalidAccessKeyId"), Kind.REFUSED, "correct the access key"),
        (refused("AccessDenied"), Kind.REFUSED, "grant reading, listing, writing"),
        (refused("403", message="Forbidden"), Kind.REFUSED, "or renew them"),
        (refused("NoSuchBucket", 404), Kind.MISSING, "no such bucket: create it"),
        (refused("NoSuchKey", 404), Kind.MISSING, "no such file"),
        (refused("QuotaExceeded"), Kind.FULL, "raise its quota"),
        (refused("XMinioStorageFull", 507), Kind.FULL, "free space"),
        (refused("SlowDown", 503), Kind.FAILED, "overloaded"),
        (boto.NoCredentialsError(), Kind.REFUSED, "output.credentialsSecretRef"),
        (boto.EndpointConnectionError(endpoint_url="http://x"), Kind.UNREACHABLE, "check AWS_ENDPOINT_URL"),
        (boto.ConnectTimeoutError(endpoint_url="http://x"), Kind.UNREACHABLE, "check AWS_ENDPOINT_URL"),
        (google_says(403, "evals@x.test does not have storage.objects.create access"), Kind.REFUSED, "grant reading"),
        (google_says(403, "The project exceeded its quota for total storage."), Kind.FULL, "raise its quota"),
        (google_says(403, "The billing account is disabled in state absent"), Kind.REFUSED, "billing is disabled"),
        (google_says(401, "Invalid Credentials"), Kind.REFUSED, "or renew them"),
        (google_says(404, "The specified bucket does not exist."), Kind.MISSING, "no such file"),
        (google_says(507, "no room"), Kind.FULL, "free space"),
        (google_says(503, "Backend Error"), Kind.FAILED, "overloaded"),
        (DefaultCredentialsError(), Kind.REFUSED, "GOOGLE_APPLICATION_CREDENTIALS"),
        (RefreshError("invalid_grant"), Kind.REFUSED, "have expired"),
        (OSError(errno.ENOSPC, "No space left on device"), Kind.FULL, "the disk is full: free space on it"),
        (FileNotFoundError("bucket/x"), Kind.MISSING, "no such file"),
        (OSError("quota exceeded"), Kind.FAILED, "quota exceeded"),
    ],
)
def test_each_error_names_cause_and_remedy_in_one_line(error: Exception, kind: Kind, remedy: str) -> None:
    problem = store_problem(error)
    assert problem.kind is kind
    assert remedy in problem.text
    assert "\n" not in problem.text


def test_store_problem_includes_the_message_of_the_store() -> None:
    assert (
        "(The provided token has expired.)"
        in store_problem(refused("ExpiredToken", message="The provided token has expired.")).text
    )
