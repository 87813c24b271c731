"""Add the customer's city to each order, by asynchronous look-ups in a service, with retries.

python job.py                                   # the program also runs a small service
python job.py --service http://localhost:8000   # your service: GET /ID returns {"city": "Oslo"}
"""

from __future__ import annotations

import argparse
import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import httpx

from penstock.datastream import AsyncDataStream, DataStream
from penstock.datastream import StreamExecutionEnvironment as Environment
from penstock.datastream.async_retry_predicates import empty_result_predicate, has_exception_predicate
from penstock.datastream.functions import AsyncFunction, AsyncRetryStrategy


class Order(NamedTuple):
    customer: int
    amount: int


class Enriched(NamedTuple):
    customer: int
    amount: int
    city: str


CITIES = {1: "Oslo", 2: "Rome", 3: "Bern"}
ORDERS = [Order(1, 20), Order(2, 5), Order(9, 7), Order(1, 3), Order(3, 11)]


class City(AsyncFunction):
    """Ask the service for the city of a customer."""

    def __init__(self, service: str) -> None:
        self.service = service

    def open(self, runtime_context: Any) -> None:
        self.client: httpx.AsyncClient | None = None

    async def async_invoke(self, value: Order) -> list[Enriched]:
        if self.client is None:  # a client belongs to the event loop that runs this method
            self.client = httpx.AsyncClient(base_url=self.service, timeout=2)
        response = await self.client.get(f"/{value.customer}")
        if response.status_code == 404:
            return [Enriched(*value, "unknown")]
        response.raise_for_status()
        return [Enriched(*value, response.json()["city"])]

    def timeout(self, value: Order) -> list[Enriched]:
        return [Enriched(*value, "no answer")]


RETRIES = AsyncRetryStrategy.exponential_backoff(
    max_attempts=5,
    initial_delay=timedelta(milliseconds=50),
    max_retry_delay=timedelta(seconds=1),
    multiplier=2.0,
    result_predicate=empty_result_predicate,
    exception_predicate=has_exception_predicate,
)


def build(orders: DataStream[Order], service: str) -> DataStream[Enriched]:
    """Build the job on a stream of orders. The results keep the order of the input."""
    enriched = AsyncDataStream.ordered_wait_with_retry(
        orders, City(service), timedelta(seconds=10), RETRIES, capacity=100
    )
    return enriched.name("city").uid("city")


class Service(BaseHTTPRequestHandler):
    """A service that knows the cities. It refuses the first request for each customer, as an overloaded service does."""

    asked: set[str] = set()

    def do_GET(self) -> None:
        city = CITIES.get(int(self.path[1:]))
        code = 503 if self.path not in self.asked else 200 if city else 404
        self.asked.add(self.path)
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps({"city": city}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def start_service() -> str:
    """Start the service in a thread. Return its URL."""
    server = ThreadingHTTPServer(("localhost", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://localhost:{server.server_port}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service", help="URL of the service (default: the program runs one)")
    arguments, _ = parser.parse_known_args()  # the remaining arguments are Penstock's
    env = Environment.get_execution_environment()
    build(env.from_collection(ORDERS).uid("orders"), arguments.service or start_service()).print()
    env.execute("async-enrichment")


if __name__ == "__main__":
    main()
