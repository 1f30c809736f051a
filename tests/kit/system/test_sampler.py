"""Sampling by scope: the usage, its limit, and readings that cannot be true."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from kit.system.descriptors import no_descriptors

from loadmanager.kit.sampler import OwnTraffic, Reading
from loadmanager.kit.system.cgroup import Cgroup
from loadmanager.kit.system.sampler import SystemSampler
from loadmanager.kit.system.settings import SamplerSettings

MIB = 1 << 20


@dataclass
class World:
    """The machine that a sampler sees; tests change it between samples."""

    folder: Path
    now_s: float = 1000.0
    bytes_in: int = 0
    bytes_out: int = 0
    busy: float = 0.0
    group: Cgroup | None = None

    def nic(
        self,
        name: str,
        *,
        speed: str | None = "1000",
        state: str = "up",
        kind: str = "1",
        virtual: bool = False,
    ) -> None:
        """Add a device, linked as `/sys/class/net` links them."""
        device = self.folder / "devices" / ("virtual" if virtual else "pci0") / "net" / name
        device.mkdir(parents=True)
        (device / "type").write_text(kind + "\n")
        (device / "operstate").write_text(state + "\n")
        if speed is not None:
            (device / "speed").write_text(speed + "\n")
        net = self.folder / "net"
        net.mkdir(exist_ok=True)
        (net / name).symlink_to(device)

    def cgroup(self, *, cpu_max: str = "200000 100000", used_s: float = 0.0) -> None:
        """A group (v2) with a quota, and 1 of 4 MiB used."""
        files = {
            "cgroup.controllers": "",
            "cpu.max": cpu_max,
            "cpu.stat": f"usage_usec {int(used_s * 1e6)}",
        }
        for name, text in {**files, "memory.max": str(4 * MIB), "memory.current": str(MIB)}.items():
            (self.folder / name).write_text(text)
        self.group = Cgroup.find(self.folder, self.folder / "none")

    def sampler(
        self, scope: str = "process", *, gbps: float | None = None, nics: tuple[str, ...] = ()
    ) -> SystemSampler:
        """A sampler of this world."""
        own = OwnTraffic(lambda: self.bytes_in, lambda: self.bytes_out, lambda: self.busy)
        settings = SamplerSettings(scope=scope, nic_speed_gbps=gbps, nics=nics)
        return SystemSampler(
            settings, own, net=self.folder / "net", cgroup=self.group, clock_s=lambda: self.now_s
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    """No NIC and no group yet."""
    return World(tmp_path)


def test_auto_is_the_group_when_it_has_a_quota(world: World) -> None:
    """`auto` means the group if a CPU quota is set, else the host."""
    assert world.sampler("auto").scope == "host"
    world.cgroup(cpu_max="max 100000")
    assert world.sampler("auto").scope == "host"
    world.cgroup()
    assert world.sampler("auto").scope == "cgroup"
    assert world.sampler("process").scope == "process"


def test_cgroup_scope(world: World) -> None:
    """CPU time over the quota in percent of a core (never more than the cores there are), memory
    over the group's limit.
    """
    world.cgroup(cpu_max="50000 100000", used_s=10)
    sampler = world.sampler("cgroup", gbps=1)
    world.cgroup(cpu_max="50000 100000", used_s=12)
    world.now_s += 10
    usage = sampler.sample()
    assert usage.cpu == Reading(20.0, 50.0)
    assert usage.memory == Reading(1.0, 4.0)
    assert usage.faults == ()
    world.cgroup(cpu_max="99900000 100000")
    assert world.sampler("cgroup").sample().cpu.limit <= 100 * (os.cpu_count() or 1)


def test_process_scope(world: World) -> None:
    """Limit is the one core of the loop, bytes are the process's own over the NIC's speed, memory
    is RSS over the memory limit.
    """
    world.nic("eth0")
    world.group = None
    sampler = world.sampler()
    world.bytes_in, world.bytes_out = 1_000_000, 2_500_000
    world.now_s += 10
    usage = sampler.sample()
    assert usage.cpu.limit == 100.0
    assert usage.bandwidth_in == Reading(800.0, 1_000_000.0)
    assert usage.bandwidth_out == Reading(2000.0, 1_000_000.0)
    assert usage.memory.usage == pytest.approx(psutil.Process().memory_info().rss / MIB, rel=0.2)
    assert usage.memory.limit == pytest.approx(psutil.virtual_memory().total / MIB, abs=1)


def test_process_scope_within_a_group_is_measured_against_its_memory_limit(world: World) -> None:
    """The memory limit of a process is its group's if that is lower; usage above it is a fault."""
    world.cgroup()
    usage = world.sampler().sample()
    assert usage.memory.limit == 0.0
    assert [fault.sensor for fault in usage.faults if fault.sensor == "memory"] == ["memory"]


@pytest.mark.parametrize("scope", ["host", "cgroup", "process"])
def test_saturated_loop_counts_as_cpu(world: World, scope: str) -> None:
    """In every scope, a busy event loop counts as CPU usage."""
    world.cgroup()
    sampler = world.sampler(scope, gbps=1)
    world.now_s += 1000
    world.busy = 1.0
    cpu = sampler.sample().cpu
    assert cpu.usage == cpu.limit > 0


def test_virtual_and_idle_devices_are_left_out(world: World) -> None:
    """Devices whose resolved link is virtual, that are not ethernet, or that are down do not count;
    the speeds of the others add up.
    """
    world.nic("eth0", speed="10000")
    world.nic("eth1", speed="2500", state="unknown")
    world.nic("veth1", virtual=True)
    world.nic("lo", kind="772", virtual=True)
    world.nic("ib0", kind="32")
    world.nic("eth2", state="down", speed="-1")
    usage = world.sampler().sample()
    assert usage.bandwidth_in.limit == usage.bandwidth_out.limit == 12_500_000.0
    assert usage.faults == ()


def test_named_devices_are_the_only_ones(world: World) -> None:
    """Devices that the settings name count, whatever they are; one that is missing is a fault."""
    world.nic("eth0", speed="1000")
    world.nic("bond0", speed="2500", virtual=True)
    usage = world.sampler(nics=("bond0",)).sample()
    assert (usage.bandwidth_in.limit, usage.faults) == (2_500_000.0, ())
    usage = world.sampler(nics=("bond0", "eth7")).sample()
    assert usage.bandwidth_in.limit == 0
    assert [fault.sensor for fault in usage.faults] == ["nicSpeed"]
    assert "eth7" in usage.faults[0].reason


@pytest.mark.parametrize("speed", ["0", "-1", "65535", "4294967295", "fast", None])
def test_unknown_speed_drives_nothing(world: World, speed: str | None) -> None:
    """A NIC without a speed is a fault that says what to set, and the limit is 0; with the override
    it does not matter.
    """
    world.nic("eth0")
    world.nic("eth1", speed=speed)
    usage = world.sampler().sample()
    assert usage.bandwidth_in.limit == usage.bandwidth_out.limit == 0.0
    assert [fault.sensor for fault in usage.faults] == ["nicSpeed"]
    assert "eth1" in usage.faults[0].reason
    assert "loadBalancerOverrideBrokerNicSpeedGbps" in usage.faults[0].reason
    overridden = world.sampler(gbps=2.5).sample()
    assert (overridden.bandwidth_in.limit, overridden.faults) == (2_500_000.0, ())


def test_no_device_at_all(world: World) -> None:
    """A container without physical devices: a fault; with the override, the traffic of the process
    is measured against it.
    """
    world.nic("eth0", virtual=True)
    assert [fault.sensor for fault in world.sampler("host").sample().faults] == ["nicSpeed"]
    sampler = world.sampler("host", gbps=1)
    world.bytes_out = 12_500_000
    world.now_s += 1
    assert sampler.sample().bandwidth_out == Reading(100_000.0, 1_000_000.0)


def test_more_than_all_is_not_believed(world: World) -> None:
    """Usage above 100 % is reported with limit 0 and a fault; a little above, from clocks read
    apart, is 100 %.
    """
    sampler = world.sampler(gbps=0.001)
    world.bytes_in, world.bytes_out = 500_000, 128_000
    world.now_s += 1
    usage = sampler.sample()
    assert usage.bandwidth_in == Reading(4000.0, 0.0)
    assert [(fault.sensor, fault.reason) for fault in usage.faults] == [
        ("bandwidthIn", "usage is 400 % of the limit")
    ]
    assert usage.bandwidth_out == Reading(1000.0, 1000.0)


def test_counter_that_goes_back_is_not_believed(world: World) -> None:
    """A reading from a counter that was reset has the limit 0 and a fault."""
    world.bytes_in = 1000
    sampler = world.sampler(gbps=1)
    world.bytes_in = 0
    world.now_s += 1
    usage = sampler.sample()
    assert usage.bandwidth_in == Reading(0.0, 0.0)
    assert [fault.sensor for fault in usage.faults] == ["bandwidthIn"]


def test_first_sample_is_not_garbage(world: World) -> None:
    """Rates right after the start are 0, not what a few milliseconds would extrapolate to; later
    ones span the time since.
    """
    sampler = world.sampler(gbps=1)
    world.bytes_in = 10_000_000
    world.now_s += 0.01
    first = sampler.sample()
    assert (first.bandwidth_in.usage, first.cpu.usage, first.faults) == (0.0, 0.0, ())
    world.now_s += 0.99
    assert sampler.sample().bandwidth_in.usage == pytest.approx(80_000.0)
    world.bytes_in = 0
    assert sampler.sample() == sampler.sample()


def test_this_machine() -> None:
    """On the real system each scope gives plausible figures; a process that works is
    seen to work.
    """
    own = OwnTraffic(lambda: 0, lambda: 0, lambda: 0.0)
    for scope in ("host", "cgroup", "process"):
        sampler = SystemSampler(
            SamplerSettings(scope=scope, nic_speed_gbps=1), own, cgroup=Cgroup.find()
        )
        until_s = time.monotonic() + 0.6
        while time.monotonic() < until_s:
            pass
        usage = sampler.sample()
        assert 0 < usage.memory.usage < usage.memory.limit
        if usage.cpu.limit:
            assert 0 < usage.cpu.usage <= usage.cpu.limit


def test_no_file_descriptors_are_a_fault_not_an_error(world: World) -> None:
    """A system that cannot be read is reported as untrusted sensors; the next sample is a good one
    again.
    """
    sampler = world.sampler()
    world.now_s += 60
    with no_descriptors():
        usage = sampler.sample()
    assert {fault.sensor for fault in usage.faults} == {
        "cpu",
        "memory",
        "bandwidthIn",
        "bandwidthOut",
    }
    assert usage.cpu == usage.memory == Reading(0.0, 0.0)
    world.now_s += 60
    assert sampler.sample().cpu.limit > 0
