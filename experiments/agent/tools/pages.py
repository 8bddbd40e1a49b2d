"""The web of the simulated world: a few pages, made up, and the same in every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Page:
    """One page, as text."""

    url: str
    title: str
    text: str


PAGES: Final[tuple[Page, ...]] = (
    Page(
        "https://atlas.example/harbour-bridge",
        "Harbour Bridge of Meren",
        "The Harbour Bridge of Meren opened in 1931. It is 1,149 metres long and 49 metres wide. Eight lanes of "
        "traffic and two railway tracks cross it. Walking across takes about twenty minutes.",
    ),
    Page(
        "https://atlas.example/mount-tarn",
        "Mount Tarn",
        "Mount Tarn is 3,482 metres high and the highest peak of the Elder range. The first ascent was in 1889 by "
        "Ilse Brandt and Tom Reyes. The hut at 2,710 metres has forty beds and is open from June to September.",
    ),
    Page(
        "https://bakery.example/sourdough",
        "Sourdough bread, step by step",
        "Mix 500 grams of flour, 350 grams of water, 100 grams of starter and 10 grams of salt. Let the dough rest "
        "for eight hours at 24 °C. Bake for 45 minutes: 20 at 250 °C with a lid, 25 at 220 °C without.",
    ),
    Page(
        "https://cityrail.example/timetable",
        "City Rail: timetable of line 4",
        "Line 4 runs from Central Station to the airport every 12 minutes from 05:10 to 23:50. The ride takes 26 "
        "minutes. A ticket costs 4.60 euros; children under six ride free.",
    ),
    Page(
        "https://docs.example/queue/limits",
        "Queue service: limits",
        "A message has at most 256 KiB. A queue keeps messages for 4 days unless set otherwise, at most 14 days. A "
        "batch holds up to 10 messages. Beyond 3,000 requests a second the service answers with status 429.",
    ),
    Page(
        "https://docs.example/queue/retries",
        "Queue service: retries and status 429",
        "After status 429 wait and try again, doubling the time from 100 milliseconds up to 20 seconds, with jitter. "
        "A message that failed 5 times goes to the dead-letter queue when one is set.",
    ),
    Page(
        "https://health.example/hay-fever",
        "Hay fever in spring",
        "Birch pollen flies from late March to May, grass pollen from May to August. On dry and windy days it is worst "
        "in the morning. This page gives no medical advice.",
    ),
    Page(
        "https://library.example/opening-hours",
        "Meren Library: opening hours",
        "Open Tuesday to Friday from 10:00 to 19:00 and Saturday from 10:00 to 16:00. Closed on Sunday and Monday. "
        "Books may be kept for 28 days and extended twice.",
    ),
    Page(
        "https://museum.example/visit",
        "Meren Museum: plan a visit",
        "Open daily but Monday from 09:30 to 18:00, on Thursday to 21:00. Adults pay 14 euros, students 8 euros. On "
        "the first Sunday of a month entry is free.",
    ),
    Page(
        "https://news.example/2026/01/12/ferry",
        "New ferry between Meren and Port Alder",
        "From 1 March 2026 a ferry sails four times a day between Meren and Port Alder. The crossing takes 55 minutes "
        "and costs 11.50 euros. It carries 280 passengers and 40 bicycles, but no cars.",
    ),
    Page(
        "https://shop.example/lamp-aurora",
        "Desk lamp Aurora",
        "The desk lamp Aurora costs 79 euros, draws 9 watts and weighs 1.4 kilograms. Delivery takes three working "
        "days. It may be sent back within 30 days.",
    ),
    Page(
        "https://wiki.example/kestrel",
        "Kestrel",
        "The kestrel is a small falcon that hovers while hunting. Its wingspan is 65 to 82 centimetres. It eats mostly "
        "voles, about eight a day, and lays three to six eggs.",
    ),
)
