"""Habits that every proto keeps, so that contracts can grow without breaking a caller."""

import pytest
from google.protobuf.descriptor import EnumDescriptor, FileDescriptor, MethodDescriptor

from evalrun_proto.judge.v1 import judge_pb2
from evalrun_proto.ledger.v1 import ledger_pb2

FILES: list[FileDescriptor] = [judge_pb2.DESCRIPTOR, ledger_pb2.DESCRIPTOR]
METHODS: list[MethodDescriptor] = [
    method for file in FILES for service in file.services_by_name.values() for method in service.methods
]


def enums() -> list[EnumDescriptor]:
    return [enum for file in FILES for enum in file.enum_types_by_name.values()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_directory_of_a_proto_equals_its_package(file: FileDescriptor) -> None:
    assert file.name.rpartition("/")[0].replace("/", ".") == file.package


@pytest.mark.parametrize("enum", enums(), ids=lambda enum: enum.name)
def test_zero_means_unspecified_and_values_carry_the_name_of_their_enum(enum: EnumDescriptor) -> None:
    prefix = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in enum.name).strip("_") + "_"
    assert enum.values_by_number[0].name == f"{prefix}UNSPECIFIED"
    assert all(value.name.startswith(prefix) for value in enum.values)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_each_rpc_has_a_separate_request_and_response(method: MethodDescriptor) -> None:
    assert method.input_type.name == f"{method.name}Request"
    assert method.output_type.name == f"{method.name}Response"


def test_work_item_has_no_field_for_tests() -> None:
    fields = {field.name for field in ledger_pb2.WorkItem.DESCRIPTOR.fields}
    assert fields == {"key", "messages", "format", "sampling", "traceparent"}
