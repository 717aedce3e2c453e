"""What `fedclade check-data` prints of a source."""

from collections.abc import Iterator

from rich.table import Table

from fedclade.data.description import Description, Devices

BAR = 40  # characters of the longest bar
MOST_CLASSES = 20  # more are not listed one by one


def show_description(found: Description) -> Iterator[str | Table]:
    """Its parts, from the whole to the devices."""
    axes = "C×H×W" if len(found.shape) == 3 else "shape"
    size = f"{found.memory_bytes / 1e6:,.3g} MB"
    yield f"Samples     {found.samples:,} of {found.dtype}, {axes} = {'×'.join(map(str, found.shape))}, {size}"
    yield f"Values      {found.value_min:.6g} to {found.value_max:.6g}"
    if found.class_samples is not None:
        each = _reach(min(found.class_samples), max(found.class_samples))
        yield f"Classes     {found.classes}, with {each} samples each"
        if len(found.class_samples) <= MOST_CLASSES:
            yield "            " + ", ".join(f"{label}: {count:,}" for label, count in enumerate(found.class_samples))
    for spread in found.numbers or ():
        middle = f"mean {spread.mean:.6g}, standard deviation {spread.deviation:.6g}"
        yield f"Numbers     to be told, {spread.least:.6g} to {spread.most:.6g}, {middle}"
    if found.devices is None:
        yield "Devices     none: a pool, which the section population deals out"
    else:
        yield from _show_devices(found.devices, "classes" if found.numbers is None else "tenths of all numbers")
    for note in found.notes:
        yield f"Note        {note}"


def _show_devices(devices: Devices, kinds: str) -> Iterator[str | Table]:
    sizes = _reach(devices.samples_min, devices.samples_max)
    yield f"Devices     {devices.count:,} with {sizes} samples each, median {devices.samples_median:,.6g}"
    classes = _reach(devices.classes_min, devices.classes_max)
    meaning = f"0: all devices have the same mix of {kinds}, towards 1: each has its own; {classes} {kinds} on a device"
    yield f"Label skew  {devices.label_skew:.3f} ({meaning})"
    if devices.groups is None:
        yield "Groups      not told, so that no adjusted Rand index will be told"
    else:
        yield f"Groups      {len(devices.groups)}, of " + ", ".join(map(str, devices.groups)) + " devices"
    if devices.split is None:
        yield "Split       not told, so that population.test_share and population.validation_share decide"
    else:
        yield "Split       " + ", ".join(f"{name} {count:,}" for name, count in devices.split.items())
    table = Table(title="Samples of a device", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("samples", justify="right")
    table.add_column("devices", justify="right")
    table.add_column()
    most = max(bar.devices for bar in devices.sizes)
    for bar in devices.sizes:
        table.add_row(_reach(bar.least, bar.most), f"{bar.devices:,}", "█" * -(-BAR * bar.devices // most))
    yield table


def _reach(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
