"""Which tests run on the oldest supported PySpark too, with the mark `oldest`: those of what changes between versions.

Every test that uses the shared Spark session is one of them, unless its file is named here. The others are for the
newest version only, because they take long and reach no part of Spark that the chosen ones do not.
"""

from __future__ import annotations

import pytest

NEWEST_ONLY = (
    "test_kafka",
    "test_service_telemetry",
    "test_spark_identities",
    "test_spark_sql",
    "test_sweep",
    "test_telemetry_job",
)

CHOSEN = {
    # Executors that come and go, and the process of the Spark engine.
    "test_cluster": ("test_executors_follow_the_load_out_and_in_and_every_move_is_exact",),
    "test_spark_engine": ("test_publications_reach_the_queues_of_those_who_want_them",),
    # Streams: both ways of a batch, what a query shows, killed workers, and tables without a store.
    "test_pipeline": (
        "test_a_log_is_matched_in_batches_and_each_batch_sees_one_version",
        "test_encrypted_publications_reach_whom_they_must",
        "test_the_query_shows_what_it_carries",
        "test_killed_python_workers_lose_nothing_and_repeat_nothing",
        "test_a_task_for_each_host_answers_in_their_order_wherever_it_ran",
        "test_a_table_is_matched_against_a_store",
        "test_a_streaming_table_is_matched",
    ),
    # Each method of data sources in Python: read, stream, write, write a stream.
    "test_spark_sources": (
        "test_a_log_is_a_table_of_json_in_parts_that_are_read_in_parallel",
        "test_a_log_is_a_stream_of_rows",
        "test_a_table_is_appended_to_a_log_by_columns",
        "test_a_repeated_batch_of_a_stream_is_appended_once",
    ),
    # Functions on Arrow batches, of tables, and of columns in SQL.
    "test_spark_tables": (
        "test_every_row_has_the_result_that_a_scan_finds",
        "test_sql_finds_what_match_finds",
        "test_one_filter_is_a_function_of_sql",
    ),
}


def is_for_oldest(path: str, function: str, fixtures: list[str]) -> bool:
    name = path.rpartition("/")[2].removesuffix(".py")
    if name in CHOSEN:
        return function in CHOSEN[name]
    return "shared_spark" in fixtures and name not in NEWEST_ONLY


def mark_for_oldest(items: list[pytest.Item]) -> None:
    for item in items:
        function = getattr(item, "originalname", item.name)
        if is_for_oldest(str(item.path), function, getattr(item, "fixturenames", [])):
            item.add_marker(pytest.mark.oldest)
