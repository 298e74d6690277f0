"""A shop: the orders of its last minutes as Parquet, and then payments as they come in: ``python orders.py DIRECTORY``.

Writes ``DIRECTORY/orders`` at once, and then files of JSON lines into ``DIRECTORY/payments`` until all has been paid
that will be. Orders and payments are the same for the same seed; only their times count from now.
"""

import argparse
import json
import random
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq


class Market(NamedTuple):
    """Where a customer lives: share of the customers, how prices in EUR become those there, and a way to pay."""

    country: str
    share: int
    currency: str
    rate: str
    cent: str
    method: str


MARKETS = (
    Market("DE", 30, "EUR", "1", "0.01", "direct debit"),
    Market("FR", 14, "EUR", "1", "0.01", "card"),
    Market("NL", 10, "EUR", "1", "0.01", "iDEAL"),
    Market("GB", 12, "GBP", "0.85", "0.01", "card"),
    Market("CH", 8, "CHF", "0.95", "0.05", "TWINT"),
    Market("PL", 8, "PLN", "4.30", "0.01", "BLIK"),
    Market("SE", 6, "SEK", "11.30", "1", "Swish"),
    Market("US", 8, "USD", "1.10", "0.01", "card"),
    Market("JP", 4, "JPY", "162", "1", "card"),
)
#: What the shop sells: number, title, and price in EUR.
GOODS = (
    ("T-110", "Assam, second flush, 250 g", "9.90"),
    ("T-121", "Darjeeling, first flush, 100 g", "13.50"),
    ("T-204", "Sencha, 250 g", "12.40"),
    ("T-219", "Genmaicha, 500 g", "15.90"),
    ("C-301", "Espresso, whole beans, 1 kg", "21.90"),
    ("C-305", "Filter coffee, ground, 500 g", "10.75"),
    ("P-410", "Teapot, cast iron, 0.8 l", "64.00"),
    ("P-455", "Café cup, set of 4", "38.00"),
    ("P-470", "Hand grinder", "89.50"),
)
FIRST_NAMES = ("Amélie", "Björn", "Chidi", "Fatma", "Ines", "Jürgen", "Łucja", "Noor", "Seán", "Yuki", "Zoë", "O'Neil")
LAST_NAMES = ("Andersson", "Brandt", "Dubois", "Evans", "García", "Kowalczyk", "Müller", "Öztürk", "Sato", "van Dijk")

#: Over how long the orders were placed.
PLACED_WITHIN = timedelta(minutes=10)
#: Share of the orders that are never paid, and of those whose first payment is declined.
NEVER_PAID, DECLINED = 0.12, 0.05
#: Half of the others are paid within 4 minutes, one in 45 takes more than 30.
MEDIAN_MIN, SIGMA = 4.0, 1.0
#: How often a file of payments is written, in s.
FILE_S = 0.5

ITEM = pa.struct({"sku": pa.string(), "title": pa.string(), "quantity": pa.int32(), "price": pa.decimal128(12, 2)})
ORDER = pa.schema(
    {
        "order_id": pa.string(),
        "customer": pa.string(),
        "country": pa.string(),
        "items": pa.list_(ITEM),
        "amount": pa.decimal128(12, 2),
        "currency": pa.string(),
        "placed_at": pa.timestamp("ms", tz="UTC"),
    }
)


class Shop:
    """Orders and payments, made in advance; the payments come in one after the other.

    Args:
        directory: Where they are written.
        count: Number of orders.
        seed: Of all that is random.
        speed_up: How many times faster than real the time goes.
    """

    def __init__(self, directory: Path, count: int, seed: int, speed_up: float) -> None:
        self._directory = directory
        self._speed_up = speed_up
        self._random = random.Random(seed)
        self._files = 0
        now = datetime.now(UTC)
        within = PLACED_WITHIN / speed_up
        times = sorted(now - within * self._random.random() for _ in range(count))
        self.orders = [self._order(100_000 + number, at) for number, at in enumerate(times)]
        payments = (payment for order in self.orders for payment in self._payments_of(order))
        self._to_come = sorted(payments, key=lambda payment: str(payment["paid_at"]), reverse=True)

    def write_orders(self) -> None:
        """Writes the orders in two files."""
        orders = self._directory / "orders"
        orders.mkdir(parents=True)
        (self._directory / "payments").mkdir()
        half = len(self.orders) // 2
        for part, rows in enumerate((self.orders[:half], self.orders[half:])):
            pq.write_table(pa.Table.from_pylist(rows, ORDER), orders / f"part-{part}.parquet")

    def write_payments(self) -> int:
        """Writes a file of the payments that have come in since the last one, if any. Returns how many."""
        now = _text(datetime.now(UTC))
        came = []
        while self._to_come and self._to_come[-1]["paid_at"] <= now:
            came.append(self._to_come.pop())
        if came:
            self._write(came)
        return len(came)

    @property
    def waits(self) -> bool:
        """Whether payments are to come."""
        return bool(self._to_come)

    def _write(self, payments: Iterable[dict[str, str]]) -> None:
        self._files += 1
        path = self._directory / "payments" / f"{self._files:06}.json"
        # Spark does not look at names with a dot before them, so it never sees half a file.
        unfinished = path.with_name(f".{path.name}")
        unfinished.write_text("".join(f"{json.dumps(payment)}\n" for payment in payments), encoding="utf-8")
        unfinished.rename(path)

    def _order(self, number: int, placed_at: datetime) -> dict[str, Any]:
        choose = self._random
        [market] = choose.choices(MARKETS, [market.share for market in MARKETS])
        goods = choose.sample(GOODS, choose.choice((1, 1, 1, 2, 2, 3, 4)))
        items: list[dict[str, Any]] = [
            {"sku": sku, "title": title, "quantity": choose.choice((1, 1, 1, 2, 3)), "price": _price(euros, market)}
            for sku, title, euros in goods
        ]
        return {
            "order_id": f"{market.country}-{number}",
            "customer": f"{choose.choice(FIRST_NAMES)} {choose.choice(LAST_NAMES)}",
            "country": market.country,
            "items": items,
            "amount": sum((item["quantity"] * item["price"] for item in items), Decimal()),
            "currency": market.currency,
            "placed_at": placed_at,
        }

    def _payments_of(self, order: dict[str, Any]) -> Iterator[dict[str, str]]:
        """Yields how an order is paid: mostly in time, some never, some after a first try that is declined."""
        choose = self._random
        after = timedelta(minutes=choose.lognormvariate(0, SIGMA) * MEDIAN_MIN) / self._speed_up
        method = next(market.method for market in MARKETS if market.country == order["country"])
        tries = {"declined": choose.random() < DECLINED, "captured": choose.random() >= NEVER_PAID}
        for part, (status, happens) in enumerate(tries.items(), 1):
            if happens:
                yield {
                    "order_id": order["order_id"],
                    "status": status,
                    "method": method,
                    "amount": str(order["amount"]),
                    "currency": order["currency"],
                    "paid_at": _text(order["placed_at"] + after * part / 2),
                }


def _price(euros: str, market: Market) -> Decimal:
    """Returns a price in a country: rounded to the smallest coin."""
    cent = Decimal(market.cent)
    return (Decimal(euros) * Decimal(market.rate) / cent).quantize(Decimal(1)) * cent


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def main() -> None:
    """Writes orders, and payments for as long as there are any."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--orders", type=int, default=3000, metavar="N", help="how many (default 3000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed-up", type=float, default=60, metavar="N", help="how many times faster (default 60)")
    given = parser.parse_args()
    shop = Shop(given.directory, given.orders, given.seed, given.speed_up)
    shop.write_orders()
    print(f"{len(shop.orders):,} orders in {given.directory}/orders; payments come in until Ctrl-C", flush=True)
    while shop.waits:
        time.sleep(FILE_S)
        shop.write_payments()


if __name__ == "__main__":
    main()
