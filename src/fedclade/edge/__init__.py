"""The radio network: what each device's link is worth this round, and what a round costs it."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Floats, Ints
from fedclade.core.links import Limits, Links, Uplink
from fedclade.core.units import duration, number
from fedclade.edge import channel, energy, latency
from fedclade.edge.availability import Presence
from fedclade.edge.devices import Devices, TracedDevices, dbm_to_watts, draw_devices
from fedclade.edge.traces import CHANNEL, DEVICE, read_trace
from fedclade.edge.vary import mean_rate_bps, varied

__all__ = ["Devices", "Edge", "Limits", "Links", "SimulatedEdge", "Uplink", "draw_devices", "plausibility"]


class Edge(Protocol):
    """How long things take; simulated here, measured on real devices."""

    subchannels: int
    model_bits: float

    def observe(self, round_: int) -> Links:
        """The links of one round, for all devices."""
        ...

    def broadcast_seconds(self, models: int) -> float:
        """How long it takes to multicast that many models."""
        ...


class SimulatedEdge:
    """Devices drawn once, fading drawn each round, and power and speed, too, where these vary; or what traces say."""

    def __init__(
        self,
        config: Config,
        samples: Ints,
        bits_per_sample: int,
        parameters: int,
        later: Mapping[int, Ints] | None = None,
    ) -> None:
        """``samples`` are those that each device trains on; ``later``: from some rounds on, other numbers of them."""
        edge, count, seed = config.edge, len(samples), config.run.seed
        self._config, self._seed = edge, seed
        self.subchannels = edge.subchannels
        self.model_bits = float(edge.bits_per_parameter * parameters)
        self.upload_bits = config.training.vectors * self.model_bits
        self.devices = draw_devices(edge, count, seed)
        self._presence = Presence(edge, count, seed)
        amounts = {1: samples} | dict(later or {})
        passes = config.training.passes
        self._cycles_from = {
            first: latency.compute_cycles(edge, passes, amount, bits_per_sample) for first, amount in amounts.items()
        }
        self._channel: channel.Channel = channel.DrawnChannel(edge, self.devices.distance_m, seed)
        if edge.trace is not None:
            found = read_trace("edge.trace", edge.trace, CHANNEL, count, edge.trace_end, config.run.rounds)
            self._channel = channel.TracedChannel(edge, found)
            self.devices = replace(self.devices, distance_m=np.full(count, np.nan))  # a trace does not tell it
        self._traced: TracedDevices | None = None
        if edge.device_trace is not None:
            found = read_trace("edge.device_trace", edge.device_trace, DEVICE, count, edge.trace_end, config.run.rounds)
            self._traced = TracedDevices(self.devices, found, latency.cycles_per_sample(edge, bits_per_sample))
            self.devices = self._traced.at(1)

    def observe(self, round_: int) -> Links:
        """Work out this round's rates, times and energies."""
        edge, traced = self._config, self._traced
        cycles = self._cycles_from[max(first for first in self._cycles_from if first <= round_)]
        devices = varied(edge, self.devices, round_, self._seed)
        if traced is not None and traced.tells_speed:
            devices = replace(devices, cpu_hz=traced.at(round_).cpu_hz)
        absent = np.zeros(len(devices.cpu_hz), dtype=bool) if traced is None else traced.absent(round_)
        seen = self._channel.gains(round_, devices.power_w)
        away = self._presence.away(round_) | absent
        before, station = seen.stations or (np.zeros(len(away), dtype=np.int64),) * 2
        mean_snr = channel.signal_to_noise(devices.power_w, seen.gain, channel.noise_watts(edge))
        snr = np.where(away, 0.0, mean_snr * seen.fading)
        rate = channel.rate_bps(edge, snr)
        upload = latency.upload_seconds(self.upload_bits, rate)
        return Links(
            snr=snr,
            rate_bps=rate,
            compute_seconds=latency.compute_seconds(cycles, devices.cpu_hz),
            upload_seconds=upload,
            compute_joules=energy.compute_joules(edge.capacitance, cycles, devices.cpu_hz),
            upload_joules=energy.upload_joules(devices.power_w, upload),
            reachable=snr >= 10.0 ** (edge.reachable_snr_db / 10.0),
            limits=self._limits(snr, devices, cycles),
            mean_rate_bps=mean_rate_bps(edge, devices, seen.gain) if seen.mean_rate_bps is None else seen.mean_rate_bps,
            away=away,
            absent=absent,
            lost=seen.faded_to < 10.0 ** (-(np.inf if edge.outage_db is None else edge.outage_db) / 10.0),
            station_before=before,
            station=station,
            uplink=self._uplink(np.where(away, 0.0, seen.gain * seen.fading), devices.power_w),
        )

    def positions(self, round_: int) -> Floats | None:
        """Where each device is in a round, K×2 in metres around the base station; None where a trace tells gains."""
        drawn = self._channel
        return drawn.places.positions(round_) if isinstance(drawn, channel.DrawnChannel) else None

    def _limits(self, snr: Floats, devices: Devices, cycles: Floats) -> Limits:
        """Times at the ends of the CPU and power ranges, at one round's signal-to-noise ratios, traits and work.

        A speed that a trace tells is the fastest that the device has to give in that round.
        """
        edge = self._config
        loudest, softest = (
            latency.upload_seconds(self.upload_bits, channel.rate_bps(edge, snr * (watts / devices.power_w)))
            for watts in dbm_to_watts(np.array([edge.power_max_dbm, edge.power_min_dbm]))
        )
        if self._traced is not None and self._traced.tells_speed:
            slowest = np.minimum(devices.cpu_hz, edge.cpu_min_hz)
            return Limits(cycles / devices.cpu_hz, cycles / slowest, loudest, softest)
        return Limits(cycles / edge.cpu_max_hz, cycles / edge.cpu_min_hz, loudest, softest)

    def _uplink(self, gain: Floats, power_w: Floats) -> Uplink:
        """Upload time as a function of bandwidth and power, at these gains and given powers of one round."""
        edge = self._config
        noise_w, noise_w_per_hz = channel.noise_by_bandwidth(edge)
        quietest, loudest = dbm_to_watts(np.array([edge.power_min_dbm, edge.power_max_dbm])).tolist()
        return Uplink(
            gain=gain,
            power_w=power_w,
            noise_w=noise_w,
            noise_w_per_hz=noise_w_per_hz,
            model_bits=self.upload_bits,
            bits_per_nat=1.0 / math.log(2.0) if edge.logarithm == "log2" else 1.0,
            power_min_w=quietest,
            power_max_w=loudest,
            subchannel_hz=edge.subchannel_hz,
            bandwidth_hz=edge.bandwidth_hz,
        )

    def broadcast_seconds(self, models: int) -> float:
        """Models are multicast one after the other, free unless a rate is set."""
        rate = self._config.downlink_bps
        return 0.0 if rate is None else models * self.model_bits / rate


def plausibility(links: Links, model_bits: float) -> list[str]:
    """What a radio engineer would raise an eyebrow at, in plain words; of the devices that are there."""
    here = slice(None) if links.absent is None else ~links.absent
    snr, uploads = links.snr[here], links.upload_seconds[here]
    if not len(snr):
        return ["no device is there in this round"]
    warnings = []
    snr_db = 10.0 * np.log10(np.maximum(np.median(snr), 1e-300))
    upload = float(np.median(uploads))
    if upload > 3600.0:
        warnings.append(
            f"median SNR {snr_db:.0f} dB: a {number(model_bits / 1e6)} Mbit upload takes {duration(upload)}; "
            'edge.noise = "thermal" is the physical value'
        )
    compute = float(np.median(links.compute_seconds[here]))
    if compute < 1e-3:
        warnings.append(
            f"median computing time {duration(compute)}: tiny data, or edge.cycles is too low for training "
            '(edge.cycles_per = "bit" is the usual reading)'
        )
    if unreachable := int(np.isinf(uploads).sum()):
        warnings.append(f"{unreachable} of {len(snr)} links carry nothing at all: their devices miss the round")
    return warnings
