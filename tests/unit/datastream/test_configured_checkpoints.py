"""A program may set the folder of its checkpoints with PyFlink's storage classes."""

from __future__ import annotations

import pytest

from penstock.common.config import options
from penstock.common.errors import InvalidJob
from penstock.datastream import FileSystemCheckpointStorage, StreamExecutionEnvironment


def test_a_checkpoint_storage_sets_the_folder_of_the_checkpoints(env: StreamExecutionEnvironment) -> None:
    env.get_checkpoint_config().set_checkpoint_storage(FileSystemCheckpointStorage("file:///checkpoints"))
    assert env.get_configuration().get(options.CHECKPOINT_DIRECTORY) == "file:///checkpoints"


def test_a_checkpoint_storage_may_be_a_url(env: StreamExecutionEnvironment) -> None:
    env.get_checkpoint_config().set_checkpoint_storage("s3://bucket/checkpoints")
    assert env.get_configuration().get(options.CHECKPOINT_DIRECTORY) == "s3://bucket/checkpoints"


def test_a_checkpoint_storage_of_files_needs_a_url() -> None:
    with pytest.raises(InvalidJob, match="needs the URL"):
        FileSystemCheckpointStorage()
