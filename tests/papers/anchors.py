"""Published epsilons and what the accountants say: computes docs/privacy-of-the-papers.md.

Run `python tests/papers/anchors.py` to write the page; a test checks that it is up to date. The published numbers
are the only ones typed; everything else on the page is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent

from fedsynth.privacy import account
from fedsynth.research.gaussian import analytic_noise, legacy_noise
from fedsynth.research.projection import ProjectedTraining, project_central, project_local

PAGE = Path(__file__).parents[2] / "docs" / "privacy-of-the-papers.md"
TEMPLATE = Path(__file__).with_name("privacy-of-the-papers.template.md")


@dataclass(frozen=True)
class Row:
    """A published epsilon with its settings. `noise` is the paper's, relative to the sensitivity of its accountant."""

    case: str
    clients: int
    cohort: float
    noise: float
    rounds: int
    delta: float
    published: float
    fixed: bool = True

    @property
    def rate(self) -> float:
        return self.cohort / self.clients

    @property
    def settings(self) -> str:
        return f"{self.cohort:,g} of {self.clients:,}, z={self.noise:g}, {self.rounds:,} rounds, delta {self.delta:.3g}"


@dataclass(frozen=True)
class Numbers:
    """The columns of the table; None where an accountant has no answer."""

    legacy: float
    rdp: float
    pld: float | None
    strict: float | None


@cache
def numbers(row: Row) -> Numbers:
    poisson = account.repeat(PoissonSampledDpEvent(row.rate, GaussianDpEvent(row.noise)), row.rounds)
    tight = account.answer(poisson, row.delta)
    pld = tight.epsilon if tight.accountant == "pld" else None
    if not row.fixed:
        legacy, rdp = (account.epsilon(poisson, row.delta, accountant=name) for name in ("rdp-legacy", "rdp"))
        return Numbers(legacy, rdp, pld, None)
    # fedsynth's multiplier is relative to the clip, and replacing a client moves the sum by two clips
    papers, strict = (_fixed(row, 2 * row.noise), _fixed(row, row.noise))
    how = {"adjacency": "replace-one"}
    legacy = account.epsilon(papers, row.delta, accountant="rdp-legacy", **how)
    return Numbers(
        legacy, account.epsilon(papers, row.delta, **how), pld, account.epsilon(strict, row.delta, **how)
    )


def _fixed(row: Row, noise: float):
    once = SampledWithoutReplacementDpEvent(row.clients, round(row.cohort), GaussianDpEvent(noise))
    return account.repeat(once, row.rounds)


def _augenstein(case: str, clients: int, published: float, delta: float) -> Row:
    return Row(case, clients, 1000, 1.0, 1000, delta, published)


AUGENSTEIN = (
    Row("Table 3, simulation (Figure 3a)", 425, 10, 0.01, 1000, 2.35e-3, 9.99e6),
    _augenstein("Table 3, realistic", 250_000, 2.38, 4.00e-8),
    Row("Table 3, simulation (Figure 3b)", 2125, 10, 0.01, 1000, 4.71e-4, 9.99e6),
    _augenstein("Table 3, realistic", 1_250_000, 1.48, 8.00e-9),
    Row("Table 3, simulation (Figure 6)", 850, 10, 0.01, 1000, 1.18e-3, 9.99e6),
    _augenstein("Table 3, realistic", 500_000, 1.79, 2.00e-8),
    _augenstein("Table 13, realistic (7a)", 1_708_824, 1.47, 5.85e-9),
    _augenstein("Table 13, realistic (7b)", 1_964_706, 1.40, 5.09e-9),
    _augenstein("Table 13, realistic (8a)", 2_000_000, 1.39, 5.00e-9),
    _augenstein("Table 13, realistic (8b)", 1_930_588, 1.40, 5.18e-9),
    Row("Section 5, word model", 342_777, 5000, 1.0, 2000, 2.92e-6, 9.22),
)


def _thesis(case: str, clients: int, cohort: float, noise: float, rounds: int, published: float) -> Row:
    return Row(case, clients, cohort, noise, rounds, clients**-1.1, published)


THESIS_SIMULATED = (
    _thesis("Table 4.5.3, EMNIST, sigma 0.0025", 20, 10, 0.05, 1500, 5.99e5),
    _thesis("Table 4.5.3, EMNIST, sigma 0.005", 20, 10, 0.1, 1500, 1.49e5),
    _thesis("Table 4.5.4, Epilepsy, sigma 0.005", 20, 10, 0.1, 1200, 1.19e5),
    _thesis("Table 4.5.4, Epilepsy, sigma 0.01", 20, 10, 0.2, 1200, 2.92e4),
    _thesis("Table 4.5.4, Epilepsy, sigma 0.025", 20, 10, 0.5, 1200, 4.01e3),
    _thesis("Table 4.5.10, GAN, sigma 0.0025", 8, 4, 0.01, 1400, 1.40e7),
    _thesis("Table 4.5.10, GAN, sigma 0.005", 8, 4, 0.02, 1400, 3.50e6),
)
THESIS_SCALED = (
    _thesis("Table 4.5.3, EMNIST, sigma 0.0025, scaled", 30_000, 200, 1.0, 1500, 2.63),
    _thesis("Table 4.5.3, EMNIST, sigma 0.005, scaled", 30_000, 100, 1.0, 1500, 1.28),
    _thesis("Table 4.5.4, Epilepsy, sigma 0.005, scaled", 10_000, 100, 1.0, 1200, 3.41),
    _thesis("Table 4.5.4, Epilepsy, sigma 0.01, scaled", 10_000, 50, 1.0, 1200, 1.65),
    _thesis("Table 4.5.4, Epilepsy, sigma 0.025, scaled", 10_000, 20, 1.0, 1200, 0.644),
    _thesis("Table 4.5.10, GAN, sigma 0.0025, scaled", 30_000, 400, 1.0, 1400, 5.33),
    _thesis("Table 4.5.10, GAN, sigma 0.005, scaled", 30_000, 200, 1.0, 1400, 2.54),
)
RECORDS, BATCH, EPOCHS = 6000, 128, 20
STEPS = EPOCHS * math.ceil(RECORDS / BATCH)
PP_FEDGAN = tuple(
    Row(f"Table 5 {letter}", RECORDS, BATCH, noise, STEPS, 1e-4, published, fixed=False)
    for letter, noise, published in zip(
        "abcdef", (0.5, 0.7, 1.0) * 2, (8.49, 2.47, 1.39, 6.2, 2.1, 1.3), strict=True
    )
)


@dataclass(frozen=True)
class Allowance:
    """How many rounds a setting allows at a budget: DPD-fVAE trains until its budget is spent."""

    case: str
    rate: float
    noise: float
    epsilon: float
    delta: float = 1e-5

    @cache  # noqa: B019
    def rounds(self, accountant: str) -> int:
        event = PoissonSampledDpEvent(self.rate, GaussianDpEvent(self.noise))
        return account.max_rounds(event, self.epsilon, self.delta, accountant=accountant)

    def one_more(self) -> float:
        """The tight cost of a round more than the budget allows."""
        event = PoissonSampledDpEvent(self.rate, GaussianDpEvent(self.noise))
        return account.epsilon(account.repeat(event, self.rounds("pld") + 1), self.delta)


ALLOWANCES = (
    Allowance("C-DPD-fVAE, MNIST (rounds)", 0.2, 1.0, 10.0),
    Allowance("C-DPD-fVAE, MNIST (rounds)", 0.1, 2.0, 1.0),
    Allowance("fVAE with central noise, MNIST (rounds)", 0.2, 1.2, 10.0),
    Allowance("fVAE with central noise, CelebA (rounds)", 0.01, 2.0, 10.0),
    Allowance("C-DPD-fVAE, CelebA (rounds)", 0.02, 0.7, 10.0),
    Allowance("L-DPD-fVAE, MNIST, batch 20 of 120 (steps)", 20 / 120, 1.2, 10.0),
)


def number(value: float | None) -> str:
    """Four digits, or a dash.

    >>> number(1234567.0), number(2.3797), number(None)
    ('1.23e+06', '2.380', '-')
    """
    if value is None:
        return "-"
    return f"{value:.3g}" if value >= 1e4 else f"{value:.1f}" if value >= 1000 else f"{value:#.4g}"


def published_of(row: Row) -> str:
    return f"{row.published:g}"


def table(rows: tuple[Row, ...]) -> str:
    head = "| case | settings | paper | legacy | RDP | PLD | strict |\n|---|---|---|---|---|---|---|\n"
    return head + "\n".join(_line(row) for row in rows) + "\n"


def _line(row: Row) -> str:
    found = numbers(row)
    values = [found.legacy, found.rdp, found.pld, found.strict]
    cells = " | ".join(number(value) for value in values)
    return f"| {row.case} | {row.settings} | {published_of(row)} | {cells} |"


def allowance_table() -> str:
    head = "| case | rate | z | budget | legacy | RDP | PLD |\n|---|---|---|---|---|---|---|\n"
    lines = []
    for row in ALLOWANCES:
        counts = " | ".join(f"{row.rounds(name):,}" for name in account.ACCOUNTANTS[::-1])
        lines.append(
            f"| {row.case} | {row.rate:.4g} | {row.noise:g} | ({row.epsilon:g}, {row.delta:g}) | {counts} |"
        )
    return head + "\n".join(lines) + "\n"


def local_table() -> str:
    head = (
        "| claimed | rounds | needed (optimal x sqrt(T)) | legacy 4.4.10-11 | true epsilon of legacy |\n"
        "|---|---|---|---|---|\n"
    )
    lines = []
    for rounds in (1, 10, 100, 1000):
        found = legacy_noise(8.0, 1e-5, rounds)
        needed = analytic_noise(8.0, 1e-5, rounds)
        values = (needed, found.noise_multiplier, found.true_epsilon)
        lines.append(f"| (8, 1e-05) | {rounds:,} | " + " | ".join(number(value) for value in values) + " |")
    return head + "\n".join(lines) + "\n"


def projection_table() -> str:
    """The thesis's Figure 4.5.12: EMNIST at sigma_G = 0.005, that is z = 0.1 with 10 of 20 clients."""
    head = "| clients | central, Poisson, PLD | local, no amplification |\n|---|---|---|\n"
    simulated = ProjectedTraining(clients=20, cohort=10, noise_multiplier=0.1, rounds=1500)
    lines = []
    for population in (10**3, 10**4, 10**5, 10**6, 10**8):
        central, local = project_central(simulated, population), project_local(simulated, population)
        lines.append(f"| {population:,} | {number(central.epsilon)} | {number(local.epsilon)} |")
    return head + "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    first, word = numbers(AUGENSTEIN[1]), numbers(AUGENSTEIN[-1])
    scaled = numbers(THESIS_SCALED[0])
    return TEMPLATE.read_text().format(
        augenstein=table(AUGENSTEIN),
        simulated=table(THESIS_SIMULATED),
        scaled=table(THESIS_SCALED),
        pp_fedgan=table(PP_FEDGAN),
        allowances=allowance_table(),
        local=local_table(),
        projection=projection_table(),
        first_paper=published_of(AUGENSTEIN[1]),
        first_strict=number(first.strict),
        word_paper=published_of(AUGENSTEIN[-1]),
        word_poisson=number(word.pld),
        scaled_paper=published_of(THESIS_SCALED[0]),
        scaled_legacy=number(scaled.legacy),
        scaled_rdp=number(scaled.rdp),
        steps=f"{STEPS:,}",
        records=f"{RECORDS:,}",
        pp=", ".join(number(numbers(row).pld) for row in PP_FEDGAN[:3]),
        pp_paper=", ".join(published_of(row) for row in PP_FEDGAN[:3]),
        pp_one=", ".join(number(numbers(_one_epoch(row)).rdp) for row in PP_FEDGAN[:3]),
        rounds_legacy=ALLOWANCES[0].rounds("rdp-legacy"),
        few_legacy=ALLOWANCES[1].rounds("rdp-legacy"),
        few_rdp=ALLOWANCES[1].rounds("rdp"),
        few_pld=ALLOWANCES[1].rounds("pld"),
        one_more=number(ALLOWANCES[1].one_more()),
        rounds_rdp=ALLOWANCES[0].rounds("rdp"),
        rounds_pld=ALLOWANCES[0].rounds("pld"),
    )


def _one_epoch(row: Row) -> Row:
    return Row(
        row.case, row.clients, row.cohort, row.noise, STEPS // EPOCHS, row.delta, row.published, fixed=False
    )


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
