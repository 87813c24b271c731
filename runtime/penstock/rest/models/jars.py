"""Programs of a session cluster, in the shapes of Flink's paths for JAR files."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from penstock.rest.models.base import Camel, Dashed, Shape
from penstock.rest.models.jobs import JobSummary


class JarEntry(BaseModel):
    """Start of a program."""

    name: str
    description: str | None = None


class JarFile(BaseModel):
    """Uploaded program. `uploaded`: ms since the epoch."""

    id: str
    name: str
    uploaded: int
    entry: list[JarEntry] = []


class JarList(BaseModel):
    """`GET /jars`."""

    address: str
    files: list[JarFile]


class JarUploaded(BaseModel):
    """`POST /jars/upload`. The id of the program is the last part of `filename`."""

    filename: str
    status: str = "success"


class JarFetch(BaseModel):
    """Body of `POST /jars/fetch`. Flink does not have this path. `name`: name of the program. Set either `sha256` or `commit`."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    url: str = Field(max_length=2048)
    sha256: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    commit: str = Field("", pattern=r"^([0-9a-f]{40})?$")
    path: str = Field("", max_length=1024)
    username: str = Field("", max_length=1024)
    password: str = Field("", max_length=8192, repr=False)
    requirements: list[str] = Field([], max_length=1000)


class JarRun(BaseModel):
    """Body of `POST /jars/:id/run`. All fields are optional."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    entry_class: str | None = Field(None, validation_alias=AliasChoices("entryClass", "entry-class"))
    program_args: str | None = Field(None, validation_alias=AliasChoices("programArgs", "program-args"))
    program_args_list: list[str] | None = Field(None, validation_alias=AliasChoices("programArgsList", "programArg"))
    parallelism: int | None = Field(None, ge=1)
    job_id: str | None = Field(None, validation_alias="jobId")
    allow_non_restored_state: bool | list[str] | None = Field(None, validation_alias="allowNonRestoredState")
    savepoint_path: str | None = Field(None, validation_alias="savepointPath")
    restore_mode: str | None = Field(None, validation_alias=AliasChoices("restoreMode", "claimMode"))
    flink_configuration: dict[str, str] | None = Field(None, validation_alias="flinkConfiguration")


class JarStarted(BaseModel):
    """`POST /jars/:id/run`."""

    jobid: str
    applicationid: str = ""


class ApplicationStarted(BaseModel):
    """`POST /jars/:id/run-application`."""

    applicationid: str


class ApplicationSummary(Dashed):
    """Entry of `GET /applications/overview`. `jobs`: number of jobs by state."""

    id: str
    name: str
    start_time: int
    end_time: int
    duration: int
    status: str
    jobs: dict[str, int]


class ApplicationList(Shape):
    """`GET /applications/overview`."""

    applications: list[ApplicationSummary]


class ApplicationDetails(Dashed):
    """`GET /applications/:id`. `timestamps`: state -> time in ms, 0 if the application was not in this state. `exit_code`: exit code of
    the program, null until its end. Flink has no exit code.
    """

    id: str
    name: str
    status: str
    start_time: int
    end_time: int
    duration: int
    timestamps: dict[str, int]
    jobs: list[JobSummary]
    exit_code: int | None = None


class ApplicationException(Camel):
    """Failure of an application or of one of its jobs."""

    exception_name: str
    stacktrace: str
    timestamp: int
    job_id: str | None = None


class ApplicationExceptionHistory(Shape):
    entries: list[ApplicationException]


class ApplicationExceptions(Camel):
    """`GET /applications/:id/exceptions`."""

    exception_history: ApplicationExceptionHistory


class JarPlan(BaseModel):
    """`GET /jars/:id/plan`."""

    plan: dict[str, Any]
