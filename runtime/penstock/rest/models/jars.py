"""Programs of a session cluster, in the shapes of Flink's paths for JAR files."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field


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


class JarPlan(BaseModel):
    """`GET /jars/:id/plan`."""

    plan: dict[str, Any]
