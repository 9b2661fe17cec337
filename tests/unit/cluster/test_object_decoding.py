"""Objects of a list or watch, decoded one by one: an object that cannot be decoded hides no other."""

import json
from typing import Any

import pytest
from lightkube import ApiError

from evalrun_cluster.object_decoding import (
    WHOLE_PAGE_BYTES,
    NotJsonError,
    UndecodableObject,
    decode_event,
    decode_page,
)


def item(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": f"u-{name}", "resourceVersion": "1"}, "spec": spec}


def nested(depth: int) -> str:
    return '{"a":[' * depth + "1" + "]}" * depth


def page_of(*items: str) -> bytes:
    # As the API server writes it: the items come before the list's own metadata.
    text = f'{{"apiVersion":"v1","items":[{", ".join(items)}],"metadata":{{"continue":"next","resourceVersion":"7"}}}}'
    return text.encode()


def deep(name: str) -> str:
    metadata = json.dumps(item(name)["metadata"])[:-1] + f',"managedFields":[{nested(3000)}]}}'
    return f'{{"spec":{nested(3000)},"metadata":{metadata}}}'


@pytest.mark.parametrize("odd", ['a"}]{[\\', "\u00e9\U0001f600", "x" * WHOLE_PAGE_BYTES])
def test_decode_page_whole_or_one_by_one_gives_the_same_objects(odd: str) -> None:
    items = [item("a", text=odd), item("b", empty={}, none=None, many=[1, -2.5e3, True, []])]
    page = decode_page(page_of(*map(json.dumps, items)))
    assert (list(page.items), page.version, page.continuation) == (items, "7", "next")


def test_decode_page_object_nested_too_deeply_is_given_by_its_metadata() -> None:
    first, second, third = decode_page(page_of(json.dumps(item("a")), deep("b"), json.dumps(item("c")))).items
    assert (first, third) == (item("a"), item("c"))
    assert isinstance(second, UndecodableObject)
    assert second.metadata == item("b")["metadata"]
    assert second.reason.startswith("RecursionError")


def test_decode_page_empty_list_has_a_version() -> None:
    page = decode_page(page_of())
    assert (list(page.items), page.version) == ([], "7")


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", '{"items":[{"a":1', '{"items":[{"a":"x', '"text"'])
def test_decode_page_text_that_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(NotJsonError):
        list(decode_page(text.encode()).items)


def test_decode_event_of_an_object_nested_too_deeply_has_type_and_metadata() -> None:
    change, found = decode_event(f'{{"type":"MODIFIED","object":{deep("a")}}}'.encode())
    assert isinstance(found, UndecodableObject)
    assert (change, found.metadata) == ("MODIFIED", item("a")["metadata"])
    assert decode_event(json.dumps({"type": "ADDED", "object": item("b")}).encode()) == ("ADDED", item("b"))


@pytest.mark.parametrize("found", ["1", "null", "[]", '{"metadata":null}', '{"metadata":{"name":"x"}}'])
def test_decode_event_of_something_without_identity_is_undecodable(found: str) -> None:
    assert isinstance(decode_event(f'{{"type":"ADDED","object":{found}}}'.encode())[1], UndecodableObject)


def test_decode_event_error_of_the_api_server_is_raised() -> None:
    status = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
    with pytest.raises(ApiError, match="too old"):
        decode_event(json.dumps({"type": "ERROR", "object": status}).encode())


@pytest.mark.parametrize("line", ["", "no JSON", "[]", '{"type":"ADDED"}', '{"type":"ADDED","object":{"a":'])
def test_decode_event_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(NotJsonError):
        decode_event(line.encode())
