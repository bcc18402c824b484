"""Packet captures of a line: what is inferred from them, and files that are not captures."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import dpkt
import pytest

from conftest import Quell
from packets import DOWN, HOME, UP, address, over_ipv6, tcp, transfer, udp_exchange
from quell._core import InputError
from quell.experiments import experiment
from quell.inputs.capture import Seen

PHONE = "192.168.1.11"


def write(file: Path, packets: list[tuple[float, bytes]], *, ng: bool = False) -> Path:
    with file.open("wb") as out:
        writer = dpkt.pcapng.Writer(out) if ng else dpkt.pcap.Writer(out)
        for at, data in sorted(packets):
            writer.writepkt(data, 1e9 + at)
    return file


def busy_line(down: bool = True, up: bool = True) -> list[tuple[float, bytes]]:
    """Return ten seconds of a line: two downloads, an upload, a call, a game and six short connections."""
    found: list[tuple[float, bytes]] = []
    for k in range(2 if down else 0):
        found += transfer(1.0, 6.0, DOWN / 2, f"198.51.100.{k + 1}", 5000 + k, 0.02, up=False)
    if up:
        found += transfer(2.0, 6.0, UP, "198.51.100.9", 6000, 0.021, up=True)
    found += udp_exchange(PHONE, 10.0, 0.02, (172, 172), 7000)
    found += udp_exchange(PHONE, 10.0, 0.033, (40, 120), 7001)
    for k in range(6):
        found += transfer(0.1 * k, 0.05, 1e6, "198.51.100.30", 8000 + k, 0.02, up=False)
    return found


@pytest.mark.parametrize("ng", [False, True])
def test_rates_rtt_and_traffic_are_inferred_from_packets(tmp_path: Path, ng: bool) -> None:
    seen = Seen.load(write(tmp_path / "line.pcap", busy_line(), ng=ng))
    assert seen.flows == {"download": 2, "upload": 1, "page": 1, "call": 1, "game": 1}
    assert seen.down_mbps == pytest.approx(DOWN / 1e6, rel=0.03)
    # Besides the upload, acknowledgments of the downloads, the call and the game use the uplink.
    beside = DOWN * 54 / 1514 + 50 * 8 * (172 + 42) + 30 * 8 * (40 + 42)
    assert seen.up_mbps == pytest.approx((UP + beside) / 1e6, rel=0.02)
    # 21 ms from the host to the server and back, 0.2 ms from an arriving packet to the host's acknowledgment.
    assert seen.rtt_ms == pytest.approx(21.2, abs=0.05)
    scenario = seen.scenario()
    assert scenario.name == "line"
    text = scenario.toml()
    assert text.count("[[flow]]") == 5
    assert 'rtt = "21.2' in text


def test_given_rates_and_rtt_replace_inferred_ones(tmp_path: Path) -> None:
    file = write(tmp_path / "line.pcap", busy_line(up=False))
    seen = Seen.load(file)
    assert seen.up_mbps is None
    with pytest.raises(InputError, match=r"no bottleneck in the upload: it was never full for 2 s; capture .* --rate"):
        seen.scenario()
    text = seen.scenario("18mbit/3mbit", "40ms").toml()
    assert 'rate = "18mbit"' in text
    assert 'rtt = "40ms"' in text
    with pytest.raises(InputError, match="give both directions"):
        seen.scenario("18mbit")
    with pytest.raises(InputError, match="no bottleneck in the upload"):
        experiment.load(file)


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_capture_of_several_interfaces_is_refused(tmp_path: Path, order: str) -> None:
    def block(kind: int, body: bytes) -> bytes:
        length = 12 + len(body)
        return struct.pack(f"{order}II", kind, length) + body + struct.pack(f"{order}I", length)

    section = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    ethernet = struct.pack(f"{order}HHI", 1, 0, 65535)
    nanoseconds = ethernet + struct.pack(f"{order}HH", 9, 1) + b"\x09" + bytes(7)
    data = tcp("198.51.100.1", HOME, (443, 5000), 1, 1, 2)
    head = struct.pack(f"{order}5I", 0, 232, 3_567_587_328, len(data), len(data))
    packet = block(6, head + data + bytes(-len(data) % 4))
    file = tmp_path / "one.pcapng"
    file.write_bytes(section + block(1, ethernet) + packet + packet)
    assert Seen.load(file).rtt_ms is None
    # Programs may describe an interface when it has its first packet. A file may have several sections.
    others = block(1, nanoseconds)
    for blocks in (others + packet + packet, packet + others + packet, packet + section + others + packet):
        file.write_bytes(section + block(1, ethernet) + blocks)
        with pytest.raises(InputError, match=r"one\.pcapng: packets of several interfaces; capture one"):
            Seen.load(file)


@pytest.mark.parametrize("near", [HOME, "172.17.0.2"])
def test_a_capture_with_each_packet_twice_is_refused(tmp_path: Path, near: str) -> None:
    # As of all interfaces of a router, without address translation, or with that between private addresses.
    once = busy_line()
    twice = [*once, *((at + 2e-5, data.replace(address(HOME), address(near))) for at, data in once)]
    with pytest.raises(InputError, match=r"line\.pcap: packets are in it more than once; capture one interface"):
        Seen.load(write(tmp_path / "line.pcap", twice))


def test_an_idle_line_has_no_bottleneck(tmp_path: Path) -> None:
    seen = Seen.load(write(tmp_path / "line.pcap", udp_exchange(PHONE, 10.0, 0.02, (172, 172), 7000)))
    assert (seen.down_mbps, seen.up_mbps, seen.rtt_ms, seen.flows) == (None, None, None, {"call": 1})
    with pytest.raises(InputError, match="no acknowledged data of TCP"):
        seen.scenario("10mbit/1mbit")


@pytest.mark.parametrize("stranger", ["10.0.0.1", "192.168.100.1"])
def test_a_packet_to_a_private_address_does_not_move_the_near_side(tmp_path: Path, stranger: str) -> None:
    # Between router and modem the near address is public. The provider's DHCP server, the modem, or the forged source
    # of a packet that the router answers, may be private.
    busy = transfer(1.0, 6.0, DOWN, "198.51.100.1", 5000, 0.02, up=False)
    busy += transfer(2.0, 6.0, UP, "198.51.100.9", 6000, 0.021, up=True)
    public = [(at, data.replace(address(HOME), address("203.0.113.5"))) for at, data in busy]
    usual = Seen.load(write(tmp_path / "line.pcap", public))
    assert usual.flows == {"download": 1, "upload": 1}
    assert usual.down_mbps == pytest.approx(DOWN / 1e6, rel=0.03)
    answer = tcp("203.0.113.5", stranger, (2, 1), 0, 6, 0)
    assert Seen.load(write(tmp_path / "line.pcap", [*public, (3.0, answer)])) == usual


def test_both_versions_of_ip_count(tmp_path: Path) -> None:
    old = transfer(1.0, 6.0, DOWN / 4, "198.51.100.1", 5000, 0.02, up=False)
    old += transfer(2.0, 6.0, UP / 4, "198.51.100.9", 6000, 0.021, up=True)
    new = transfer(1.0, 6.0, DOWN * 3 / 4, "198.51.100.1", 5000, 0.02, up=False)
    new += transfer(2.0, 6.0, UP * 3 / 4, "198.51.100.9", 6000, 0.021, up=True)
    seen = Seen.load(write(tmp_path / "line.pcap", [*old, *((at, over_ipv6(data)) for at, data in new)]))
    assert seen.flows == {"download": 2, "upload": 2}
    # The header of IPv6 is 20 bytes longer.
    assert seen.down_mbps == pytest.approx(DOWN * (1 / 4 + 3 / 4 * 1534 / 1514) / 1e6, rel=0.03)
    acknowledgments = DOWN * (54 / 4 + 74 * 3 / 4) / 1514
    assert seen.up_mbps == pytest.approx((UP * (1 / 4 + 3 / 4 * 1534 / 1514) + acknowledgments) / 1e6, rel=0.02)
    assert seen.rtt_ms == pytest.approx(21.2, abs=0.05)


@pytest.mark.parametrize("up", [False, True])
def test_of_two_networks_of_ipv6_that_of_the_client_is_the_near_side(tmp_path: Path, up: bool) -> None:
    one = transfer(1.0, 6.0, UP, "198.51.100.9", 6000, 0.021, up=up)
    seen = Seen.load(write(tmp_path / "line.pcap", [(at, over_ipv6(data)) for at, data in one]))
    assert seen.flows == {"upload" if up else "download": 1}
    assert (seen.up_mbps if up else seen.down_mbps) == pytest.approx(UP / 1e6, rel=0.03)


def test_packets_of_other_protocols_and_fragments_count_for_the_rate(tmp_path: Path) -> None:
    packets = transfer(1.0, 6.0, DOWN, "198.51.100.1", 5000, 0.02, up=False)
    found = []
    for k, (at, data) in enumerate(packets):
        with_ports = bytearray(data)
        if k % 8 == 2:
            with_ports[14 + 9] = 50  # ESP
        elif k % 8 == 6:
            with_ports[14 + 7] = 185  # an offset
        found.append((at, bytes(with_ports)))
    seen = Seen.load(write(tmp_path / "line.pcap", found))
    assert seen.flows == {"download": 1}
    assert seen.down_mbps == pytest.approx(DOWN / 1e6, rel=0.03)


def test_traffic_within_the_home_is_left_out(tmp_path: Path) -> None:
    usual = Seen.load(write(tmp_path / "line.pcap", busy_line()))
    local = transfer(1.0, 6.0, 5 * DOWN, "192.168.1.20", 5010, 0.0001, up=False)
    loopback = transfer(1.0, 6.0, 5 * DOWN, "127.0.0.1", 5010, 0.0001, up=False)
    local += [(at, data.replace(address(HOME), address("127.0.0.1"))) for at, data in loopback]
    assert Seen.load(write(tmp_path / "line.pcap", [*busy_line(), *local])) == usual


def test_a_capture_that_is_still_being_written_is_read(tmp_path: Path) -> None:
    file = write(tmp_path / "line.pcap", busy_line())
    whole = file.read_bytes()
    for cut in (7, 11, 23, 40):
        file.write_bytes(whole[: len(whole) - cut])
        assert Seen.load(file).flows["download"] == 2


@pytest.mark.parametrize("ng", [False, True])
def test_zeros_after_the_last_packet_end_a_capture(tmp_path: Path, ng: bool) -> None:
    file = write(tmp_path / "line.pcap", busy_line(), ng=ng)
    os.truncate(file, 100 << 30)  # sparse: takes no space
    assert Seen.load(file).flows["download"] == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "neither a pcap nor a pcapng file"),
        (b"[link]\n" * 9, "neither a pcap nor a pcapng file"),
        (b"\xd4\xc3\xb2\xa1\2\0\4\0", "neither a pcap nor a pcapng file"),
        (struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 105), "link type 105; quell reads"),
        (struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1), "no packets of TCP or UDP in it"),
    ],
)
def test_files_that_are_not_captures_are_errors(tmp_path: Path, data: bytes, message: str) -> None:
    file = tmp_path / "line.pcap"
    file.write_bytes(data)
    with pytest.raises(InputError, match=message):
        Seen.load(file)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="Linux's, whose first byte cannot be read")
def test_a_capture_that_a_disk_does_not_return_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "line.pcap").symlink_to("/proc/self/mem")
    with pytest.raises(InputError, match=r"line\.pcap: cannot be read: Input/output error"):
        Seen.load(tmp_path / "line.pcap")


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "no.pcap", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(InputError, match=message):
            Seen.load(path)


def test_malformed_and_truncated_frames_are_skipped(tmp_path: Path) -> None:
    junk = [(float(k), bytes((k * 7 + i * 31) % 256 for i in range(k % 90))) for k in range(500)]
    cut = [(600.0 + k, tcp(HOME, "198.51.100.1", (1, 2), 0, 0, 0)[:k]) for k in range(54)]
    seen = Seen.load(write(tmp_path / "line.pcap", [*junk, *cut, *busy_line()]))
    assert seen.flows["download"] == 2


def test_packets_with_timestamps_years_away_are_skipped(tmp_path: Path) -> None:
    stray = tcp(HOME, "198.51.100.1", (1, 2), 0, 0, 0)
    seen = Seen.load(write(tmp_path / "line.pcap", [*busy_line(), (3e9, stray), (2e6, stray)]))
    assert seen.down_mbps == pytest.approx(DOWN / 1e6, rel=0.03)


def test_tune_reads_a_capture_and_reports_its_traffic(tmp_path: Path, quell: Quell) -> None:
    file = write(tmp_path / "line.pcap", busy_line())
    done = quell("tune", str(file), "--queues", "fq_codel", "--trials", "8", "--seeds", "2", "--duration", "5s")
    assert done.returncode == 0, done.stderr
    assert "2 download, 1 upload, 1 page, 1 call, 1 game; --rate and --rtt correct it" in done.stderr
    assert "tc qdisc" in done.stdout
    done = quell("tune", str(file), "--rate", "10mbit")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "quell: --rate 10mbit: give both directions, as in --rate 50mbit/10mbit (download/upload)",
    )
