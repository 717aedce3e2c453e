"""The settings of the clustering methods, one section each. A tuning number stands here with its meaning and evidence.

The evidence for cross-evaluation's numbers is in docs/explanation/clustering.md: they were chosen on seeds 1 to 4 of
its grid.
"""

from typing import Annotated, Literal

from pydantic import Field

from fedclade.config.section import Section

Linkage = Literal["minmax", "average", "complete"]


class NormThresholdsConfig(Section):
    """The paper's rule: split when the mean update is small while some device still pulls hard."""

    epsilon1: float = Field(0.5, gt=0, description="a mean update smaller than this means standing still (ε1)")
    epsilon2: float = Field(1.0, gt=0, description="an update larger than this means pulling hard (ε2)")
    warmup_rounds: int = Field(0, ge=0, description="no stop and no split in these first rounds")
    norm: Literal["update", "per-step"] = Field(
        "update", description="‖Δw‖, or ‖Δw‖/(η·steps), which does not grow with a device's data"
    )
    weighting: Literal["uniform", "samples"] = Field(
        "uniform", description="of the mean update in the tests; models are always averaged by D_k"
    )
    bipartition: Linkage = Field(
        "average",
        description="average or complete linkage, or the smallest largest cross similarity, exactly (the paper)",
    )
    gamma: Literal["off", "estimated"] | Annotated[float, Field(ge=0)] = Field(
        "off",
        description="γ of Algorithm 1, line 23: not tested, estimated from the child's mean, or a constant",
    )
    pairs_up_to: int = Field(
        10_000,
        ge=1,
        description="clusters of up to so many devices are cut by their updates, larger ones by sketches of these; "
        "average and complete linkage are then made of 2,000 devices, whose sides the others join",
    )
    neighbours: int = Field(
        10, ge=1, le=1000, description="nearest neighbours among these 2,000 by which each of the others joins a side"
    )


class CrossEvaluationConfig(Section):
    """The devices say whose training helps whom, and try every cut on held-out images."""

    level: float = Field(
        0.0001, gt=0, lt=0.5, description="how often, at most, a cut is accepted by chance (p-value of a split test)"
    )
    controls: int = Field(
        5,
        ge=0,
        le=10_000,
        description="random halves of a group with which a cut that passed is compared; 0: devices are taken to be "
        "alike but for their groups, which writers, for one, are not",
    )
    control_level: float = Field(
        0.001, gt=0, lt=0.5, description="if random halves have such a p-value, devices differ one by one"
    )
    control_share: float = Field(
        0.25,
        ge=0,
        le=1000,
        description="if random halves also differ by this share of what the cut's children differ by",
    )
    pays_after: int = Field(
        3,
        ge=0,
        le=1_000_000,
        description="where devices differ one by one: first rounds of a cluster without a split, as all helps then",
    )
    pays_share: float = Field(
        0.4,
        ge=0,
        le=1000,
        description="where devices differ one by one: what the other side's training costs a device against its own "
        "side's, at least, as a share of the most good that a round with the closest others would have done so far",
    )
    pays_deeper: float = Field(
        0.7,
        ge=0,
        le=1000,
        description="where devices differ one by one: the same, as a share of what it cost in the cuts that a cluster "
        "comes from",
    )
    pays_pair: float = Field(
        0.5,
        gt=0,
        le=1,
        description="where devices differ one by one: the part of what a cut must cost that is enough within classes "
        "where a child is a pair",
    )
    cuts_tried: int = Field(4, ge=1, le=10_000, description="where devices differ one by one: cuts tried at a time")
    closest_share: float = Field(
        0.33, gt=0, le=1, description="where devices differ one by one: share of the others that count as the closest"
    )
    sure_images: int = Field(
        50,
        ge=0,
        le=1_000_000,
        description="where devices differ one by one: images with which a device's opinion counts half",
    )
    patience: int = Field(10, ge=1, description="rounds without progress on held-out data after which a cluster stops")
    review_every: int = Field(
        3, ge=0, description="rounds after which devices may change, and clusters merge; 0: never"
    )
    warmup_rounds: int = Field(0, ge=0, description="no cut is tried in these first rounds of each cluster")
    bipartition: Linkage = Field("average", description="how the similarity of updates proposes a cut")
    survey_work: float = Field(
        1.0,
        gt=0,
        le=1_000_000,
        description="work of looking at the others' models, at most, as a share of a round's training",
    )
    survey_work_later: float = Field(
        0.1, gt=0, le=1_000_000, description="the same after a cut whose p-value was above 'suspect_level'"
    )
    survey_least: int = Field(
        64, ge=1, le=1_000_000, description="images on which a device looks at models at least, if it has so many"
    )
    review_images: int = Field(
        48, ge=1, le=1_000_000, description="images of a device, about, on which it looks at the few models of clusters"
    )
    wait: float = Field(
        0.5, gt=0, le=1000, description="share of its age that a cluster waits after a cut that did not pass"
    )
    wait_one_by_one: float = Field(
        0.33, gt=0, le=1000, description="the same where devices differ one by one and all were heard"
    )
    survey_step: float = Field(
        0.3, gt=0, description="share of another's update that is looked at: its direction, not how far it overfits"
    )
    survey_columns: int = Field(
        64, ge=2, description="devices at most whose models are asked about in one survey, and that are cut first"
    )
    survey_devices: int = Field(
        1000, ge=2, description="with more devices than this, cuts come from similarity alone: affinity is K × K"
    )
    affinity_kept: float = Field(
        0.8, ge=0, le=1, description="weight of what a device said before against what it says now"
    )
    affinity_groups: int = Field(
        8, ge=2, le=12, description="groups at most that a cluster is thought to consist of at first"
    )
    affinity_fits: int = Field(
        12, ge=1, le=10_000, description="turns in which the effects of device and model are taken out"
    )
    similarity_share: float = Field(
        0.2, gt=0, lt=1, description="of the level, for the cut by similarity, where affinity proposes another one"
    )
    children_apart: float = Field(
        3.0, gt=0, description="a split test's children are so many times as far apart as one round makes them"
    )
    pays_level: float = Field(0.05, gt=0, lt=1, description="p-value at which one child's own model beats the parent's")
    loses_level: float = Field(0.8, gt=0, le=1, description="p-value from which on the other child seems to lose")
    shared_classes: float = Field(
        0.05,
        ge=0,
        le=1,
        description="share of the images in classes that both sides hold, at least, to compare by class",
    )
    suspect_level: float = Field(
        0.05, ge=0, lt=1, description="p-value of the last cut up to which a cluster waits longer before it stops"
    )
    suspect_patience: int = Field(3, ge=1, description="so many times as long")
    progress: float = Field(0.99, gt=0, le=1, description="a loss above this share of the best one is no progress")
    reopen_factor: float = Field(
        1.2, gt=1, description="a stopped cluster whose loss has grown by this factor goes on, where it is re-checked"
    )
    move_level: float = Field(0.05, gt=0, lt=1, description="p-value at which a device moves to another cluster")
    newcomer_level: float = Field(0.5, gt=0, lt=1, description="the same for devices that are nowhere at home yet")
    min_speakers: int = Field(2, ge=1, description="members of a cluster, at least, that must answer to speak for it")
    merge_level: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="p-value above which nothing tells two clusters apart, and neither loses by merging",
    )
    merge_voices: float = Field(
        0.5, gt=0, le=1, description="share of either cluster that must be asked about a merger"
    )
    harm_gainers: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="share of those asked, at most, whom a harmful device's training helps, as they say; devices whose "
        "answers do not count are not among them; with a larger share a group that small is left out, too, until it "
        "is split off",
    )
    harm_asked: int = Field(4, ge=1, description="devices asked, at least, before one is called harmful")
    harm_surveys: int = Field(
        2,
        ge=1,
        description="surveys that must say so, none between in which half gain; then its update is left out",
    )
    harm_quantile: float = Field(
        0.6, gt=0, lt=1, description="quantile of the good that training does to others, taken as usual"
    )
    contradiction: float = Field(
        0.5,
        ge=0,
        le=1,
        description="correlation of what two devices say of each other's models: where the median device's is above "
        "this, one whose is below its reverse is a liar, and its answers do not count; 1: all count",
    )


class IfcaConfig(Section):
    """IFCA: k models; each round every device takes the one with the smallest loss on its training data."""

    clusters: int = Field(2, ge=1, le=10_000, description="number of models (k)")


class FlHcConfig(Section):
    """FL+HC: after some rounds of conventional federated learning, one hierarchical clustering of all updates."""

    rounds: int = Field(10, ge=0, description="rounds before the clustering (n)")
    clusters: int = Field(
        2, ge=1, le=10_000, description="clusters that are left when merging ends (k), if 'threshold' is unset"
    )
    threshold: float | None = Field(
        None, gt=0, description="distance from which on clusters are not merged, however many there are then (T)"
    )
    distance: Literal["manhattan", "euclidean", "cosine"] = Field(
        "cosine", description="between two updates; of the three, the one that was right most often (seed 11)"
    )
    linkage: Literal["complete", "average", "single", "ward"] = Field(
        "average", description="between two clusters; the same holds"
    )


class FeSemConfig(Section):
    """FeSEM: k centres; in every round each device takes the one that its weights are nearest."""

    clusters: int = Field(2, ge=1, le=10_000, description="number of centres (k)")


class FedGroupConfig(Section):
    """FedGroup: groups by the cosines of first updates with their leading singular vectors."""

    clusters: int = Field(2, ge=1, le=10_000, description="number of groups (m)")
    pretrain_scale: int = Field(
        20, ge=1, le=1_000_000, description="so many devices times m train before the groups are made (α)"
    )


class PacflConfig(Section):
    """PACFL: once, before training, a clustering by the principal angles between the devices' data subspaces."""

    vectors: int = Field(
        3, ge=1, le=1000, description="leading singular vectors that a device uploads, of each class (p)"
    )
    by_class: bool = Field(True, description="decompose the images of each class by themselves; false: all together")
    angle: Literal["smallest", "corresponding"] = Field(
        "corresponding",
        description="between two devices: the smallest principal angle (eq. 2), or the mean angle between vectors of "
        "the same class and rank (eq. 3)",
    )
    clusters: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="clusters that are left when merging ends; unset: 'threshold' decides, and there may be any number",
    )
    threshold: float = Field(
        65.0,
        gt=0,
        le=90,
        description="degrees from which on clusters are not merged (β), to be set for each data set; 65 tells the "
        "groups of 20 devices of MNIST and FEMNIST apart with seeds 1 and 2",
    )
    linkage: Literal["complete", "average", "single"] = Field("average", description="between two clusters")
