"""The lying server over masked sums: stages left out or doubled, different survivors shown, all opened that opens."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lying_participant import STEPS, VECTORS, Participant
from lying_server import LyingServer, Run
from observer import MaskedRound, Sum
from small_world import CLIENTS, HOME, NAMES, composed, first_of

from fedsynth.deploy.link.messages import Result, Stage, Staged
from fedsynth.transport.agreement import Agreement, dump
from fedsynth.transport.bits import frame, unframe
from fedsynth.transport.masking_client import OWN, PAIRED
from fedsynth.transport.shamir import SHARE


@dataclass
class MaskingLiar(LyingServer):
    """Plays the server's half of masked sums; every party is a real site or one that helps it."""

    def _parties(self, run: Run) -> dict[str, Participant]:
        """Those who help, with the lies that they tell this time."""
        for name in self.helpers:
            if name not in run.participants:
                folder = self.folder / "participants" / f"{run.name}-{run.session}" / name
                claimed = self.lie("clients", CLIENTS, CLIENTS - 1, CLIENTS + 2)
                run.participants[name] = Participant(name, run.name, run.terms, folder, clients=claimed)
            party = run.participants[name]
            party.forget()
            party.vector = self.lie("vector", "nothing", *VECTORS)
            party.leaves_at = self.lie("leaves", "", *STEPS)
        return run.participants

    def _order(self, run: Run, job: str) -> dict[str, object]:
        """What the sites are told of the round."""
        self.number += 1
        everybody = sorted((*self.honest, *self.helpers), key=first_of)
        cohort = self.lie("cohort", everybody, everybody[:2], everybody[::-1], everybody[:1])
        sizes = [run.participants[name].clients if name in run.participants else CLIENTS for name in cohort]
        return {
            "number": self.lie("number", self.number, 0, self.number - 1),
            "job": self.lie("stage's job", job, "round", "balance"),
            "sites": cohort,
            "clients": self.lie("sizes", sizes, [*sizes[:-1], sizes[-1] + 2], [1] * len(sizes)),
            "minimum": self.lie("minimum", 2, 0, 3),
        }

    def ask_masked(self, run: Run, job: str) -> None:
        """One masked sum, from keys to what opens it."""
        parties = self._parties(run)
        order = self._order(run, job)
        places = {name: place for place, name in enumerate(order["sites"])}  # type: ignore[arg-type]
        asked = [name for name in NAMES if name in (*self.honest, *self.helpers)]
        keys = self._stage_all(run, "advertise", dict.fromkeys(asked, json.dumps(order).encode()))
        agreement = self._agreement(run, order)
        if agreement is None or HOME not in places:  # work without the stages that it needs
            self.keep(run, HOME, self.tell(self.work(run, job)[HOME]))
            return
        mechanism = (composed(run.terms).opening if job == "balance" else composed(run.terms)).mechanism
        known = MaskedRound(f"{job} {mechanism.noise_multiplier}", agreement, places[HOME])
        known.keys = {places[name]: blob for name, blob in keys.items() if name in places}
        self._exchange(run, known, places)
        for site, work in self.work(run, job).items():
            answer = self.tell(work, site)
            self.keep(run, site, answer)
            if isinstance(answer, Result) and answer.blob and site in places:
                known.vectors[places[site]] = answer.blob
        for name, party in parties.items():
            vector = party.masked(self.random) if name in places else None
            if vector is not None:
                known.vectors[places[name]] = vector
        self._confirm(run, known, places)
        self._open(run, known, places)

    def _agreement(self, run: Run, order: dict[str, object]) -> Agreement | None:
        """The terms that a site makes of this order: as one of the parties has them."""
        halves = [site._runs[run.name].sealer for site in self.sites.values() if run.name in site._runs]
        halves += [party.half for party in run.participants.values()]
        rounds = [half._round for half in halves if half is not None and half._round is not None]
        return next((one.agreement for one in rounds if one.agreement.number == order["number"]), None)

    def _stage_all(self, run: Run, stage: str, requests: dict[str, bytes]) -> dict[str, bytes]:
        """One stage with everybody; who is silent or refuses is left out."""
        answers = {}
        for name, payload in requests.items():
            if name in run.participants:
                blob = run.participants[name].stage(stage, payload)
                answers |= {} if blob is None else {name: blob}
                continue
            for _ in range(self.lie("times", 1, 0, 2)):
                staged = self.tell(Stage(run.name, run.session, 0, stage, payload), name)
                answers |= {name: staged.blob} if isinstance(staged, Staged) else {}
        return answers

    def _exchange(self, run: Run, known: MaskedRound, places: dict[str, int]) -> None:
        """Keys and shares go round."""
        everyone = frame([place.to_bytes(4, "big") + blob for place, blob in sorted(known.keys.items())])
        present = [name for name, place in places.items() if place in known.keys]
        shared = self._stage_all(run, "share", dict.fromkeys(present, everyone))
        sealed: dict[int, dict[int, bytes]] = {}
        for name, blob in shared.items():
            own, *entries = unframe(blob)
            known.own_digests[places[name]] = own
            opened = (unframe(entry, 4) for entry in entries)
            sealed[places[name]] = {int.from_bytes(to, "big"): box for to, _, _, box in opened if box}
        delivery = {}
        for name in shared:
            senders = sorted(sender for sender, boxes in sealed.items() if places[name] in boxes)
            if name in self.honest:
                senders = self.lie("sharers", senders, senders[1:], senders[:1])
            known.delivered[places[name]] = set(senders)
            delivery[name] = frame([one.to_bytes(4, "big") + sealed[one][places[name]] for one in senders])
        self._stage_all(run, "mask", delivery)

    def _confirm(self, run: Run, known: MaskedRound, places: dict[str, int]) -> None:
        """Show the survivors, perhaps different ones to different parties, and collect what opens the sum."""
        arrived = tuple(sorted(known.vectors))
        lists = {}
        for name in (name for name in places if places[name] in arrived):
            fewer = tuple(place for place in arrived if place == places[name] or self.random.random() < 0.5)
            lists[name] = self.lie("survivors", arrived, fewer, (places[name],))
        helping = [name for name in run.participants if name in lists]
        signed = self._stage_all(run, "confirm", {name: dump(told) for name, told in lists.items()})
        requests = {}
        for name in signed:
            signatures = {
                places[other]: blob for other, blob in signed.items() if lists[other] == lists[name]
            }
            for other in helping:
                signatures[places[other]] = run.participants[other].signature(lists[name])
            pieces = [place.to_bytes(4, "big") + blob for place, blob in sorted(signatures.items())]
            requests[name] = frame(pieces)
        for name, blob in self._stage_all(run, "reveal", requests).items():
            for piece in unframe(blob):
                owner = int.from_bytes(piece[:4], "big")
                kind = OWN if owner in lists[name] else PAIRED
                known.note_share(owner, kind, places[name], piece[5 : 5 + SHARE])
        for name in helping:
            for kind, secret in run.participants[name].secrets().items():
                known.secrets[places[name], kind] = secret
            for owner, kind, share in run.participants[name].told_shares():
                known.note_share(owner, kind, places[name], share)

    def _open(self, run: Run, known: MaskedRound, places: dict[str, int]) -> None:
        """Keep the sum over the fewest parties that opens: it has the least noise. Helpers' vectors are known."""
        spoilt = {
            places[name]
            for name, party in run.participants.items()
            if name in places and party.vector != "nothing"
        }
        opened = {parties: values for parties, values in known.opened().items() if not parties & spoilt}
        if opened:
            fewest = min(opened, key=lambda parties: (len(parties), sorted(parties)))
            self.sums.append(Sum(run.name, known.question, opened[fewest]))
