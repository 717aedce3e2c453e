"""Every field a user may set, in frozen sections that check their values. Units are in the names, SI in the code."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, PlainSerializer, Strict, model_validator

from fedclade.config.methods import (
    CrossEvaluationConfig,
    FedGroupConfig,
    FeSemConfig,
    FlHcConfig,
    IfcaConfig,
    NormThresholdsConfig,
    PacflConfig,
)
from fedclade.config.section import Complaint, Section

Relaxed = Strict(False)  # TOML has lists, no tuples
AttackKind: TypeAlias = Literal[
    "none",
    "not-finite",
    "huge",
    "sign-flip",
    "random",
    "free-rider",
    "sybil",
    "alie",
    "inner-product",
    "label-flip",
    "backdoor",
]
MOST_SUBCHANNELS = 1_000_000
TraceEnd: TypeAlias = Literal["repeat", "hold", "refuse"]


SKETCH_OF_MANY = 64  # numbers kept of an update where there are too many to keep: its norm can be told by them


class RunConfig(Section):
    """How long, how often, from which seed."""

    seed: int = Field(1, ge=0, description="every random draw is keyed by it")
    rounds: int = Field(60, ge=1, le=1_000_000_000, description="rounds at most (R)")
    time_budget_seconds: float | None = Field(
        None, gt=0, description="simulated seconds at most for the whole run (T^tot); unset: no limit"
    )
    epsilon: float = Field(
        0.05, ge=0, description="ε of P1.0: how far a cluster's loss may end above the best it has had"
    )
    end: Literal["rounds", "stopped"] = Field(
        "rounds", description="'stopped' ends as soon as every cluster has stopped; 'rounds' uses all rounds"
    )
    conventional: Literal["frozen", "continued"] = Field(
        "continued",
        description="the one-model comparison: the root trained on by everybody, off the clock, or as it stood at the "
        "first split, which costs nothing and says little if that was early",
    )
    fine_tune: int = Field(
        0,
        ge=0,
        description="times that each device trains its cluster's model once more for E epochs, alone and off the "
        "clock, after the last round: the tuned accuracy is told beside the other; 0: none",
    )
    evaluate_every: int = Field(1, ge=1, description="rounds between evaluations on the devices' test data")
    evaluate_devices: int | None = Field(
        None,
        ge=1,
        description="devices evaluated at most: a sample of every cluster, the same every round; unset: 10,000",
    )
    record: Literal["auto", "devices", "clusters"] = Field(
        "auto",
        description="what run.db has of a round: every device's upload and every event of a device (about 150 bytes "
        "each), or sums by cluster; auto: sums above 5,000 devices",
    )
    checkpoint_every: int = Field(10, ge=1, description="rounds between checkpoints")
    report: bool = Field(True, description="write report.html, the page of the run, at its end")
    metrics: Annotated[tuple[str, ...], Relaxed] = Field(
        (), description="metrics of your own, each 'package.module:function', see docs/reference/metrics.md"
    )


class PopulationConfig(Section):
    """What each device holds."""

    source: str = Field(
        "mnist5k",
        description="mnist5k, digits, femnist, cifar10, mix, synthetic, topics; an .npz, .csv or .parquet file, or a "
        "folder with one of them for each device; 'hf:NAME', a Hugging Face data set; or "
        "'package.module:function', see docs/how-to/own-data.md",
    )
    root: str | None = Field(None, description="folder of femnist/ and cifar10/; unset: $FEDCLADE_DATA, else ./data")
    label_column: str = Field("y", min_length=1, description="the column of a table that holds the classes or numbers")
    device_column: str = Field("device", min_length=1, description="the column of a table that says whose each row is")
    input_columns: Annotated[tuple[str, ...], Relaxed] = Field(
        (), description="the columns of a table that a model is fed with; empty: all but those of other meaning"
    )
    targets: Literal["auto", "classes", "numbers"] = Field(
        "auto",
        description="what models are to tell of a sample: its class, or numbers (regression); auto: texts and whole "
        "numbers are classes, floats are numbers",
    )
    standardise: bool = Field(
        False,
        description="subtract from every input its mean over all samples, and divide it by its standard deviation: "
        "each feature, or each channel of images; false: as the source says itself",
    )
    memory_limit_gb: float = Field(
        4.0, gt=0, description="a file or folder of data that would take more memory is refused before it is read"
    )
    devices: int = Field(20, ge=1, le=10_000_000, description="number of devices (K)")
    mix: Annotated[tuple[str, ...], Relaxed] = Field(
        ("mnist5k", "digits"),
        min_length=2,
        description="source 'mix': the data sets that devices have, each a pool of images; which of them a device "
        "has is its planted group",
    )
    synthetic_models: Literal["device", "group"] = Field(
        "device",
        description="source 'synthetic': every device has a rule and inputs of its own, or all devices of a group "
        "(incongruence.groups) have the same rule, and all the same kind of inputs",
    )
    synthetic_targets: Literal["classes", "numbers"] = Field(
        "classes", description="source 'synthetic': what its samples have, ten classes or one number (regression)"
    )
    synthetic_alpha: float = Field(
        1.0, ge=0, description="source 'synthetic', models 'device': deviation of the rules' centres (α)"
    )
    synthetic_beta: float = Field(
        1.0, ge=0, description="source 'synthetic', models 'device': deviation of the inputs' centres (β)"
    )
    samples: int | None = Field(None, ge=2, description="images handed out in all, at most; unset: all there are")
    redraw: bool = Field(
        False,
        description="every device draws its images from the whole pool, so that there may be more devices than images; "
        "an image is for training or for testing whoever holds it; false: no image goes to two devices",
    )
    partition: Literal["iid", "dirichlet", "classes", "writer"] = Field(
        "dirichlet", description="who holds which labels"
    )
    alpha: float = Field(1.0, gt=0, description="Dirichlet concentration; small = skewed")
    classes_per_device: int = Field(2, ge=1, description="labels a device holds, for partition 'classes'")
    sizes: Literal["equal", "power-law"] = Field("equal", description="how much data a device holds")
    min_samples: int = Field(10, ge=2, description="images of the smallest device")
    max_samples: int = Field(1500, ge=2, description="images of the largest device, for power-law sizes")
    deal_all: bool = Field(
        False,
        description="hand out all images: both ends of power-law sizes are multiplied until none is left; with "
        "partition 'classes', none of the classes that some device holds",
    )
    power_exponent: float = Field(1.5, gt=0, le=50, description="p(n) ~ n^-exponent between min and max samples")
    test_share: float = Field(0.2, gt=0, lt=1, description="share of a device's images kept for testing")
    validation_share: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share of a device's images on which split and move are tried, at least 40 of them or a fifth; "
        "unset: 0.1 with cross-evaluation, else none",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_samples > self.max_samples:
            raise Complaint("max_samples", self.max_samples, f"must be at least min_samples = {self.min_samples}")
        if self.test_share + (self.validation_share or 0.0) >= 1:
            raise Complaint(
                "validation_share",
                self.validation_share,
                f"with test_share = {self.test_share} nothing is left to train on",
            )
        return self


class IncongruenceConfig(Section):
    """The planted groups: what makes one model unable to serve all."""

    kind: str = Field(
        "none",
        description="what differs between the groups: rotate, permute-labels, disjoint-classes, contrast, blur, "
        "colour, feature-shift, or 'package.module:function'; 'none' makes all devices one group",
    )
    groups: Annotated[tuple[int, ...], Relaxed] = Field(
        (1,),
        min_length=1,
        description="relative group sizes; [15, 5] of 20 devices is 15 and 5, of 40 it is 30 and 10",
    )
    angles: Annotated[tuple[float, ...], Relaxed] | None = Field(
        None, description="degrees per group, for 'rotate'; unset: evenly over the circle"
    )
    amounts: Annotated[tuple[float, ...], Relaxed] | None = Field(
        None,
        description="how much per group: a factor for 'contrast', pixels for 'blur', degrees of hue for 'colour', "
        "standard deviations for 'feature-shift'; unset: as each kind does itself",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if min(self.groups) < 1:
            raise Complaint("groups", list(self.groups), "every group needs a size of at least 1")
        if self.kind == "rotate" and self.angles is not None and len(self.angles) != len(self.groups):
            raise Complaint("angles", list(self.angles), f"needs one angle for each of the {len(self.groups)} groups")
        if self.amounts is not None and len(self.amounts) != len(self.groups):
            raise Complaint("amounts", list(self.amounts), f"needs one for each of the {len(self.groups)} groups")
        return self


class DriftConfig(Section):
    """Devices whose data change during the run, to see whether the method follows; see docs/how-to/drift.md."""

    kind: Literal["none", "group", "swap"] = Field(
        "none",
        description="nothing changes, some devices change to the next planted group, or pairs of devices of different "
        "groups swap all their data",
    )
    round: int = Field(20, ge=1, description="the first round with the new data")
    share: float = Field(0.2, gt=0, le=1, description="share of the devices that change, at least one or one pair")


class ModelConfig(Section):
    """What is trained."""

    name: str = Field(
        "auto",
        description="mlp, cnn, cnn-large, alexnet, logistic, embedding-bag, or 'package.module:factory'; auto takes "
        "cnn for images of 16×16 or more, embedding-bag for token ids, mlp for all else",
    )
    local: Annotated[tuple[str, ...], Relaxed] = Field(
        (),
        description="names of tensors that stay on each device, with * for anything: ['3.*'] keeps a layer (FedPer), "
        "['*norm*'] what normalises (FedBN); empty: all are shared",
    )
    hidden: int = Field(
        64, ge=1, le=100_000, description="width of the mlp's hidden layer, and of the embedding-bag's embeddings"
    )
    vocabulary: int = Field(
        1000,
        ge=2,
        le=1_000_000,
        description="token ids that the embedding-bag knows: 0, which fills up short texts, to one less",
    )
    width: float = Field(1.0, gt=0, le=100, description="multiplies the alexnet's layer widths")


class TrainingConfig(Section):
    """Local mini-batch SGD."""

    epochs: int = Field(10, ge=1, le=1_000_000, description="local epochs a round (E)")
    batch_size: int = Field(32, ge=1, le=1_000_000, description="samples a step (b)")
    learning_rate: float = Field(0.01, gt=0, description="step size (η)")
    learning_rate_decay: float = Field(1.0, gt=0, le=1, description="multiplies η after every round")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of the local SGD, fresh each round")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty of the local SGD")
    proximal: float = Field(
        0.0, ge=0, description="FedProx: weight of the pull towards the model that the device was sent (μ); 0: FedAvg"
    )
    refit_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="share of the rounds, the last ones, in which cross-evaluation decides nothing any more, and "
        "devices train on what they held out for its questions, too; 0: never, nor with SCAFFOLD",
    )
    scaffold: bool = Field(
        False,
        description="SCAFFOLD: control variates keep devices from drifting apart; twice the bits in either direction",
    )
    ditto: float = Field(
        0.0,
        ge=0,
        description="Ditto: each device also trains a model of its own, which is drawn to its cluster's with this "
        "weight (λ); its accuracy is told beside the other; 0: none",
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="where torch computes")
    engine: Literal["auto", "sequential", "workers", "batched", "ray"] = Field(
        "auto",
        description="how devices are trained: the plain loop, worker processes, many devices' models stacked, or on a "
        "Ray cluster (section ray); auto picks one of the first three",
    )
    workers: int | None = Field(
        None, ge=1, le=1024, description="processes that train; unset: one per core if worth it"
    )
    updates_gb: float = Field(
        4.0,
        gt=0,
        description="updates of all devices that would take more are not kept: norms, sketches and sums are made in "
        "passing, and the little else that is asked for is trained again",
    )

    def rate(self, round_: int) -> float:
        """η in a round."""
        return self.learning_rate * self.learning_rate_decay ** (round_ - 1)

    @property
    def passes(self) -> int:
        """Times that a device goes through its data in a round: E, and as often again for a model of its own."""
        return self.epochs * (2 if self.ditto else 1)

    @property
    def vectors(self) -> int:
        """Vectors as long as a model that a device gets and sends in a round: with SCAFFOLD a control variate, too."""
        return 2 if self.scaffold else 1

    @model_validator(mode="after")
    def _scaffold_fits(self) -> Self:
        if self.scaffold and (self.momentum or self.proximal or self.ditto):
            raise Complaint("scaffold", True, "is for plain SGD: leave momentum, proximal and ditto at 0")
        return self


class RayConfig(Section):
    """The Ray cluster of ``training.engine = "ray"``; ``training.workers`` says how many actors there are."""

    address: str = Field(
        "local",
        min_length=1,
        description="'local' starts Ray on this machine; 'HOST:PORT' joins the cluster there, 'auto' the one that "
        "$RAY_ADDRESS names or that was started on this machine",
    )
    chunk: int = Field(100, ge=1, description="devices that an actor gets at once; 50 to 500 is sensible")
    gpus: float = Field(
        0.0, ge=0, description='GPUs for each actor, for training.device = "cuda"; 0.25: four share one'
    )
    start_seconds: float = Field(
        120.0, gt=0, description="how long to wait for the cluster to start the first actor before giving up"
    )


class EdgeConfig(Section):
    """The radio network and the devices' processors."""

    bandwidth_hz: float = Field(10e6, gt=0, description="the base station's bandwidth (B)")
    subchannel_hz: float = Field(1e6, gt=0, description="one sub-channel's; N = B / this")
    distance_min_m: float = Field(20.0, gt=0, description="nearest device")
    distance_max_m: float = Field(100.0, gt=0, description="farthest device")
    path_gain_db: float = Field(-35.0, description="power gain at the reference distance (g0)")
    reference_distance_m: float = Field(2.0, gt=0, description="reference distance (d0)")
    path_exponent: float = Field(4.0, gt=0, le=20, description="gain falls with distance to this power")
    fading: Literal["rayleigh", "none"] = Field("rayleigh", description="block fading, new each round")
    power_min_dbm: float = Field(-10.0, description="transmit power, uniform in dBm from here")
    power_max_dbm: float = Field(20.0, description="to here")
    noise: Literal["thermal", "paper-text", "paper-table"] = Field(
        "thermal", description="-174 dBm/Hz x sub-channel; or the paper's 1e-6 W or -10 dBm"
    )
    noise_figure_db: float = Field(0.0, ge=0, description="added to thermal noise")
    logarithm: Literal["log2", "ln"] = Field("log2", description="of the rate formula; the paper writes ln")
    reachable_snr_db: float = Field(
        10.0, description="a link below this counts as out of reach for policy 'most-data-available'"
    )
    vary: Literal["none", "power", "cpu", "both"] = Field(
        "none",
        description="what each device draws anew in every round, from the same range as at first: transmit power, CPU "
        "speed or both; 'none': it keeps what it has",
    )
    availability: Literal["always", "bernoulli", "markov"] = Field(
        "always", description="devices are always there, come and go at random, or stay and stay away for a while"
    )
    availability_share: float = Field(0.8, gt=0, le=1, description="share of the rounds in which a device is there")
    availability_rounds: float = Field(
        5.0, ge=1, description="rounds in a row that a device is there on average, for 'markov'"
    )
    late_share: float = Field(0.0, ge=0, lt=1, description="share of the devices that are not there at first")
    late_round: int = Field(10, ge=1, description="the round in which they join")
    outage_db: float | None = Field(
        None, gt=0, description="an upload is lost where fading takes more than this; unset: none is"
    )
    cycles: float = Field(20.0, gt=0, description="CPU cycles per bit or per sample (φ)")
    cycles_per: Literal["bit", "sample"] = Field("bit", description="what φ counts; the paper's is per sample")
    cpu_min_hz: float = Field(1e9, gt=0, description="slowest processor")
    cpu_max_hz: float = Field(9e9, gt=0, description="fastest processor")
    bits_per_parameter: int = Field(32, ge=1, le=1_000_000, description="ξ = this x parameters")
    downlink_bps: float | None = Field(None, gt=0, description="rate at which each model is multicast; unset: free")
    capacitance: float = Field(1e-28, ge=0, description="κ of the computing energy κ·cycles·f²")
    trace: str | None = Field(
        None,
        description="CSV or Parquet file with each link's gain or rate by device and round, instead of drawn ones; see "
        "docs/how-to/traces.md",
    )
    device_trace: str | None = Field(
        None,
        description="CSV or Parquet file that says by device and round how fast each computes and whether it is there",
    )
    trace_end: TraceEnd = Field(
        "repeat",
        description="after the last round of a trace: begin it again, stay at its last round, or refuse longer runs",
    )
    shadowing_db: float = Field(
        0.0, ge=0, description="standard deviation of what obstacles add to or take from a link, log-normal; 0: none"
    )
    shadowing_distance_m: float = Field(
        50.0, gt=0, description="way that a moving device goes until its shadowing is correlated by 1/e only"
    )
    mobility: Literal["none", "random-waypoint"] = Field(
        "none", description="devices stand still, or walk straight to one place after the other"
    )
    mobility_seconds: float = Field(60.0, gt=0, description="time that devices walk from one round to the next")
    speed_min_mps: float = Field(0.5, gt=0, description="slowest walk, metres a second, drawn for each way")
    speed_max_mps: float = Field(2.0, gt=0, description="fastest walk")
    pause_seconds: float = Field(0.0, ge=0, description="rest before the next way")
    stations: int = Field(
        1,
        ge=1,
        le=10_000,
        description="base stations: one in the middle, the others evenly on a circle; they share the sub-channels",
    )
    station_distance_m: float = Field(100.0, gt=0, description="radius of that circle")
    handover_db: float = Field(
        3.0, ge=0, description="a device changes to another base station that it reaches better by more than this"
    )

    @property
    def subchannels(self) -> int:
        """N = B / B_sub."""
        return int(self.bandwidth_hz / self.subchannel_hz + 1e-9)

    @model_validator(mode="after")
    def _subchannels_can_be_counted(self) -> Self:
        if self.bandwidth_hz / self.subchannel_hz > MOST_SUBCHANNELS:
            raise Complaint(
                "subchannel_hz",
                self.subchannel_hz,
                f"must be at least bandwidth_hz / {MOST_SUBCHANNELS} = {self.bandwidth_hz / MOST_SUBCHANNELS:g}",
            )
        return self

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for low, high in (
            ("distance_min_m", "distance_max_m"),
            ("power_min_dbm", "power_max_dbm"),
            ("cpu_min_hz", "cpu_max_hz"),
            ("speed_min_mps", "speed_max_mps"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise Complaint(high, getattr(self, high), f"must be at least {low} = {getattr(self, low)}")
        away_for = self.availability_rounds * (1.0 - self.availability_share) / self.availability_share
        if self.availability == "markov" and 0 < away_for < 1:
            least = self.availability_share / (1.0 - self.availability_share)
            raise Complaint(
                "availability_rounds",
                self.availability_rounds,
                f"must be at least {least:.3g} to be there in {self.availability_share} of the rounds",
            )
        if self.subchannels < 1:
            raise Complaint("subchannel_hz", self.subchannel_hz, f"must be at most bandwidth_hz = {self.bandwidth_hz}")
        return self


class SchedulingConfig(Section):
    """Who takes part, and who uploads when."""

    policy: str = Field(
        "fair",
        description="fair, fair-cover, fair-patient, full, random, best-channel, best-update, most-data, "
        "most-data-available, round-robin; of other papers oort, tifl, power-of-choice, fedcs; or "
        "'package.module:function'",
    )
    per_round: int | None = Field(
        None, ge=1, description="devices a round for policies that pick a few; unset: one per sub-channel (N)"
    )
    window: int | None = Field(
        None,
        ge=1,
        description="rounds within which 'fair-cover' hears every device of an open cluster, and 'fair-patient' hears "
        "it once; unset: twice the fewest that are possible",
    )
    after_stop: Literal["cover", "greedy", "round-robin", "freeze"] = Field(
        "cover",
        description="who goes on in a stopped cluster, under the fair policies: everybody within a window when "
        "its channel is good, and counts by its share of the cluster's data; the fastest (the paper); members in turn; "
        "nobody",
    )
    n_greedy: int = Field(3, ge=1, description="devices that go on in a stopped cluster; the paper's is 1")
    greedy_clusters: int = Field(
        2,
        ge=1,
        description="clusters there must be before stopped ones let only a few go on: as long as the root is whole, "
        "everybody does (Algorithm 1, lines 2 to 5); 1: also where there is only one",
    )
    recheck_every: int = Field(
        0, ge=0, description="rounds after which a stopped cluster is heard in full again; 0: never"
    )
    order: Literal["latency", "compute", "longest-upload", "optimal"] = Field(
        "longest-upload",
        description="upload order: ascending T_tot (the paper), earliest ready first, longest upload of those ready "
        "first, or the shortest round (needs the extra 'optimal'; for few devices)",
    )
    pairing: Literal["first-free", "strict"] = Field(
        "first-free",
        description="next sub-channel: the first that frees up, or the predecessor's in the set before",
    )
    allocation: str = Field(
        "fixed",
        description="CPU speed and power: fixed (as drawn), slack (lowered to be just in time for the slot), boost "
        "(the first set at its limits where that shortens the round, then lowered), or 'package.module:function'",
    )
    deadline_seconds: float | None = Field(
        None, gt=0, description="a device that cannot finish by then misses the round; unset: none"
    )
    deadline_final_seconds: float | None = Field(
        None,
        gt=0,
        description="what the deadline shrinks to as clusters stop, in step with their devices' share; unset: it stays",
    )

    @model_validator(mode="after")
    def _deadline_shrinks(self) -> Self:
        final, first = self.deadline_final_seconds, self.deadline_seconds
        if final is not None and (first is None or final > first):
            raise Complaint("deadline_final_seconds", final, f"must be at most deadline_seconds = {first or 'unset'}")
        return self


class ClusteringConfig(Section):
    """Which devices share a model; each method has a section of its own."""

    method: str = Field(
        "cross-evaluation",
        description="cross-evaluation (the devices say whose training helps whom; nothing to tune), norm-thresholds "
        "(the paper's rule with ε1 and ε2), ifca (k models, each device takes the best), flhc (hierarchical clustering "
        "once), fesem (k-means of weights), fedgroup (k-means of directions, once), pacfl (the data's subspaces, "
        "once), oracle (the planted groups are told), none (one model), local (each device alone), or "
        "'package.module:factory'",
    )
    min_cluster_size: int = Field(2, ge=1, description="devices in a child, at least")
    max_age: int | None = Field(
        None,
        ge=0,
        description="rounds an update may be old and still serve norms and similarity; unset: 10 with "
        "cross-evaluation, else 0",
    )
    age_discount: float = Field(
        1.0, gt=0, le=1, description="weight of such an update, to the power of its age in rounds"
    )
    sketch: int | None = Field(
        None,
        ge=16,
        le=1_000_000,
        description="keep of each device's last update only a random projection to so many numbers, which serves "
        "similarity with a standard error of 1/sqrt of it; unset: the whole update if it may be older than a round, "
        "else 1024 numbers",
    )

    panel_above: int | None = Field(
        None,
        ge=1,
        description="with more devices than this, the method is put to a panel of each cluster, and everybody else is "
        "placed by the outcome; unset: 1000 with cross-evaluation, else never",
    )
    panel_smallest: float = Field(
        0.01,
        gt=0,
        le=0.5,
        description="the smallest group that is to be found, as a share of its cluster: a panel is so large that it "
        "holds six of its devices with the probability panel_chance",
    )
    panel_chance: float = Field(0.95, gt=0, lt=1, description="see panel_smallest")
    panel_devices: int | None = Field(
        None, ge=4, description="devices in a panel; unset: what panel_smallest needs, 188 if nothing else is set"
    )
    panel_worst: float = Field(
        0.05,
        ge=0,
        le=1,
        description="half of a panel is drawn from this share of its cluster: from those whom its model fits worst, "
        "for a small group is among them; 0: all is drawn from everybody",
    )
    panel_rounds: int = Field(
        12,
        ge=1,
        description="rounds after which a panel is drawn anew; at first when its cluster is twice as old as then; more "
        "than cross_evaluation.patience, or nobody stops",
    )
    panel_review: int = Field(
        6,
        ge=0,
        description="rounds after which everybody may move to the cluster whose model fits it best, as after each "
        "split; 0: only then",
    )
    panel_restless: float = Field(
        0.02, gt=0, le=1, description="while more than this share of the devices moves, no further cut is tried"
    )
    panel_apart: float = Field(
        3.0, gt=0, description="to place everybody, the children's models are set so many times as far apart"
    )

    @property
    def needs_panel(self) -> float:
        """What ``panel_above`` comes to."""
        if self.panel_above is not None:
            return self.panel_above
        return 1000 if self.method == "cross-evaluation" else math.inf

    @property
    def age_limit(self) -> int:
        """What ``max_age`` comes to."""
        return self.max_age if self.max_age is not None else 10 if self.method == "cross-evaluation" else 0

    @property
    def remembered(self) -> int | None:
        """What ``sketch`` comes to: numbers kept of an update; None: all."""
        return self.sketch if self.sketch is not None else None if self.age_limit else 1024

    def remembered_of(self, whole: bool) -> int | None:
        """The same where updates may be too many to be kept ``whole``."""
        return self.remembered if whole else self.remembered or SKETCH_OF_MANY


class AggregationConfig(Section):
    """How the updates of a cluster's devices are made into the one that its model is moved by."""

    rule: str = Field(
        "mean",
        description="mean (weighted by data), or a rule that a few hostile devices cannot move far: "
        "clipped-mean (none longer than the median one), median, trimmed-mean (of each coordinate), krum, "
        "multi-krum, geometric-median; or 'package.module:function'",
    )
    optimiser: Literal["none", "momentum", "adagrad", "adam", "yogi"] = Field(
        "none",
        description="FedOpt: what the server makes of the aggregated update, with a memory for each cluster's model; "
        "none: the model moves by the update itself (FedAvg)",
    )
    optimiser_rate: float | None = Field(
        None, gt=0, description="the optimiser's step size (η of the server); unset: 1 with momentum, else 0.01"
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="how much of the mean of past updates the optimiser keeps (β1)")
    beta2: float = Field(0.99, ge=0, lt=1, description="how much of the mean of their squares adam and yogi keep (β2)")
    tau: float = Field(
        1e-3, gt=0, description="added to the root of that mean: the smaller, the more adaptive the optimiser (τ)"
    )
    hostile_share: float = Field(
        0.2,
        ge=0,
        lt=0.5,
        description="share of a cluster's updates, at most, that are expected to be hostile: what 'trimmed-mean' cuts "
        "off on either side, and f of 'krum' and 'multi-krum'",
    )
    krum_kept: int | None = Field(
        None, ge=1, description="updates that 'multi-krum' averages (m); unset: n - f - 2 of n updates"
    )
    weiszfeld_steps: int = Field(
        1000, ge=1, le=1_000_000, description="steps, at most, of the search for the geometric median"
    )
    weiszfeld_floor: float = Field(
        1e-6, gt=0, lt=1, description="its smoothing, as a share of the longest update, and the precision it ends at"
    )
    absurd_factor: float = Field(
        10.0, gt=1, description="an update so many times as large as is usual in its cluster is rejected"
    )
    absurd_compared: int = Field(5, ge=2, description="updates of a cluster, at least, to tell what is usual")
    absurd_telling: int = Field(
        2, ge=1, description="of devices heard before, at least, to tell what is usual without the others"
    )

    @property
    def rate(self) -> float:
        """What ``optimiser_rate`` comes to."""
        return self.optimiser_rate or (1.0 if self.optimiser == "momentum" else 0.01)


class AttackConfig(Section):
    """Hostile or broken devices, to see what they do to the others."""

    kind: AttackKind = Field(
        "none",
        description="what their updates are: NaN, a hundred times too large, reversed, noise of the usual size, "
        "nothing (free-rider), all of them the first one's reversed (sybil), just within what is usual (alie), the "
        "mean reversed three times over (inner-product), or trained on wrong labels (label-flip) or for a backdoor",
    )
    share: float = Field(0.2, ge=0, le=1, description="share of the devices that are hostile")
    lies: bool = Field(
        False, description="whether they also answer the reverse of the truth to everything that they are asked"
    )


class PrivacyConfig(Section):
    """Noise in what devices answer, so that no answer tells much of a single sample."""

    noise: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="standard deviation of the Gaussian noise in every answer, in units of what one sample can change; "
        "0: none. Updates, and how many samples a device has, are not protected",
    )


class DeploymentConfig(Section):
    """How far real devices are believed; a simulation takes no notice of it."""

    deadline_cap_seconds: float = Field(
        3600.0, gt=0, le=1e7, description="a round or a question lasts no longer, whatever devices say of their speed"
    )
    samples_max: int = Field(
        10_000_000, ge=1, le=10**9, description="a device that says it has more samples may not take part"
    )
    slowest_over_median: float = Field(
        10.0, ge=1, le=1e9, description="no device is expected to take longer than so many times what the median does"
    )
    devices_max: int = Field(10_000, ge=1, le=10**7, description="further devices, by name, may not take part")
    samples_over_median: float = Field(
        10.0, ge=1, le=1e9, description="a device's samples count for at most so many times the median device's"
    )
    classes_max: int = Field(10_000, ge=1, le=10**6, description="a device that says it has more may not take part")
    values_max: int = Field(
        2**20, ge=1, le=2**31, description="numbers in one sample; a device that says it has more may not take part"
    )
    shape: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Relaxed] = Field(
        (), max_length=8, description="of one sample; empty: what most of the devices that come first say"
    )
    mean: Annotated[tuple[float, ...], Relaxed] = Field(
        (), description="what samples are normalised with; empty: what most of the devices that come first say"
    )
    std: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Relaxed] = Field((), description="as mean")
    bound_names: bool = Field(
        False,
        description="a device's name belongs for good to the key of the node that first had it; for nodes that "
        "authenticate: others have a new key whenever they start",
    )


class CompareConfig(Section):
    """What `fedclade compare` sets against each other; a single run takes no notice of it."""

    policies: Annotated[tuple[str, ...], Relaxed] = Field(
        ("fair", "random"), min_length=1, description="policies compared"
    )
    methods: Annotated[tuple[str, ...], Relaxed] = Field(
        (),
        description="clustering methods compared, each with each policy; 'ifca@3' has three clusters, 'ifca@k' as many "
        "as are planted, 'ifca@k+1' one more; empty: clustering.method alone",
    )
    populations: Annotated[tuple[str, ...], Relaxed] = Field(
        (),
        description="populations to compare in: rotated-2, rotated-4, permuted-4, disjoint-3, two-of-20, iid, "
        "label-skew, or 'name: section.field=value; section.field=value'; empty: the config's own",
    )
    variants: Annotated[tuple[str, ...], Relaxed] = Field(
        (), description="further contenders, each 'name: section.field=value; section.field=value'"
    )
    devices: Annotated[tuple[int, ...], Relaxed] = Field(
        (), description="numbers of devices (K); empty: population.devices alone"
    )
    seeds: int = Field(5, ge=1, le=10_000, description="repetitions: one with each of so many seeds, from run.seed on")
    time_budget_seconds: float | None = Field(
        None,
        gt=0,
        description="simulated seconds that every run gets, with as many rounds as fit into them; unset: run.rounds",
    )
    against: str = Field(
        "",
        description="the contender to whom the others' differences are taken; empty: 'fair', else 'none', else the "
        "first",
    )
    target_accuracy: float = Field(
        0.7, gt=0, le=1, description="mean device accuracy, or R², whose first round and second are told"
    )


class Custom(Mapping[str, Any]):
    """Settings of your own plug-ins: any names, each a text, a number, true, false, or a list of these."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self._settings = {name: self._checked(name, value) for name, value in (settings or {}).items()}

    @staticmethod
    def _checked(name: str, value: object) -> object:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise Complaint(name, value, "a name is made of letters, digits, _ and -")
        items = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(item, str | bool | int | float) for item in items):
            raise Complaint(name, value, "must be a text, a number, true, false, or a list of these")
        if not all(math.isfinite(item) for item in items if isinstance(item, float)):
            raise Complaint(name, value, "must be a finite number")
        return value if items is not value else tuple(items)

    def __getitem__(self, name: str) -> Any:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __hash__(self) -> int:  # as every other section has one
        return hash(frozenset(self._settings.items()))

    def __repr__(self) -> str:
        return f"Custom({self._settings})"


class Config(Section):
    """One run, whole."""

    run: RunConfig = RunConfig()
    population: PopulationConfig = PopulationConfig()
    incongruence: IncongruenceConfig = IncongruenceConfig()
    drift: DriftConfig = DriftConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    ray: RayConfig = RayConfig()
    edge: EdgeConfig = EdgeConfig()
    scheduling: SchedulingConfig = SchedulingConfig()
    clustering: ClusteringConfig = ClusteringConfig()
    norm_thresholds: NormThresholdsConfig = NormThresholdsConfig()
    cross_evaluation: CrossEvaluationConfig = CrossEvaluationConfig()
    ifca: IfcaConfig = IfcaConfig()
    flhc: FlHcConfig = FlHcConfig()
    fesem: FeSemConfig = FeSemConfig()
    fedgroup: FedGroupConfig = FedGroupConfig()
    pacfl: PacflConfig = PacflConfig()
    aggregation: AggregationConfig = AggregationConfig()
    attack: AttackConfig = AttackConfig()
    deployment: DeploymentConfig = DeploymentConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    compare: CompareConfig = CompareConfig()
    custom: Annotated[Mapping[str, Any], AfterValidator(Custom), PlainSerializer(dict)] = Custom()

    @property
    def validation_share(self) -> float:
        """What is held out of a device's images for split tests."""
        given = self.population.validation_share
        return given if given is not None else 0.1 if self.clustering.method == "cross-evaluation" else 0.0

    @property
    def refit_from(self) -> int:
        """The first round in which devices train on what they held out, too; one that never comes where they do not."""
        refits = self.clustering.method == "cross-evaluation" and not self.training.scaffold  # which counts D_k's steps
        share = self.training.refit_share if refits else 0.0
        return self.run.rounds + 1 - int(share * self.run.rounds)

    @property
    def by_device(self) -> bool:
        """What ``run.record`` comes to: whether a run records every device, or sums by cluster."""
        return self.run.record == "devices" or (self.run.record == "auto" and self.population.devices <= 5_000)

    def keeps_updates(self, parameters: int) -> bool:
        """Whether all devices' updates of so many parameters fit into ``training.updates_gb``."""
        return 4.0 * self.population.devices * parameters <= 1e9 * self.training.updates_gb

    @property
    def epsilons(self) -> tuple[float, ...]:
        """ε1 and ε2 where they decide anything."""
        paper = self.clustering.method == "norm-thresholds"
        return (self.norm_thresholds.epsilon1, self.norm_thresholds.epsilon2) if paper else ()

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        if len(self.incongruence.groups) > self.population.devices:
            raise Complaint(
                "incongruence.groups",
                list(self.incongruence.groups),
                f"more groups than devices ({self.population.devices})",
            )
        if self.model.local and self.population.redraw:
            raise Complaint("model.local", list(self.model.local), "is not for devices that share images (redraw)")
        if self.model.local and (self.training.scaffold or self.training.ditto):
            own = "scaffold" if self.training.scaffold else "ditto"
            raise Complaint("model.local", list(self.model.local), f"cannot be had together with training.{own}")
        if self.aggregation.optimiser != "none" and self.clustering.method == "fesem":
            raise Complaint(
                "aggregation.optimiser", self.aggregation.optimiser, "fesem sets models to means of weights: no step"
            )
        if self.population.partition == "writer" and self.incongruence.kind == "disjoint-classes":
            raise Complaint(
                "incongruence.kind",
                "disjoint-classes",
                "a writer writes all classes; take another population.partition",
            )
        planted = self.incongruence.kind not in ("none", "disjoint-classes")
        known = planted and len(self.incongruence.groups) > 1
        if self.drift.kind == "group" and not known:
            raise Complaint(
                "drift.kind",
                "group",
                'needs groups that incongruence.kind plants, "rotate" for instance; else take "swap"',
            )
        return self
