"""The keys of scenario files as types, for `Scenario.replace` and `Scenario.from_keys`. None takes a key away.

Written by tools/keys.py from the tables of keys; docs/reference/scenarios.md says more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict


class Noise(TypedDict, total=False):
    """Bursts of noise (Gilbert-Elliott)."""

    loss: float | str | None
    """Probability that a noisy moment destroys an MPDU or an acknowledgement. Default: 1."""

    quiet: Literal[0] | str | None
    """Mean length of the quiet times, exponential. Default: "100ms"."""

    noisy: Literal[0] | str | None
    """Mean length of the noisy times, exponential. Default: "10ms"."""


class Node(TypedDict, total=False):
    """A node of the cell; it takes rate and losses from [wifi] where it has none of its own."""

    name: str | None
    """The node's name in flows, routes and reports. Required."""

    queue: str | None
    """Words of its queues. Default: [wifi]'s."""

    hears: Sequence[str] | None
    """The nodes that it hears; two nodes hear each other if neither leaves the other out. Default: every node."""

    mcs: int | Literal["minstrel"] | None
    """Modulation and coding, 0 to 31 (0 to 7 with one spatial stream, 8 to 15 with two, and so on); or minstrel,
    which selects the rate. Default: 7."""

    streams: int | None
    """Spatial streams that minstrel may use, 1 to 4. Default: 1."""

    schedule: Sequence[Sequence[Literal[0] | str | int]] | None
    """MCSs and when they begin, as in [["0s", 0], ["25s", 1]]."""

    per: float | str | Sequence[float | str] | None
    """Probability that an MPDU is lost, or eight probabilities for MCS 0 to 7 (modulo 8). Default: 0."""

    snr: float | None
    """Signal-to-noise ratio in dB, which determines the probability of loss."""


class Wifi(TypedDict, total=False):
    """An 802.11n cell in place of [link]."""

    stations: int | None
    """Number of stations (sta1 and so on) at an access point ap; in a mesh, of nodes. Required, or
    [[wifi.node]]."""

    mode: Literal["ap", "mesh"] | None
    """ap: the first node is the access point, through which stations reach each other; mesh: nodes send to each
    other. Default: "ap"."""

    routes: Sequence[Sequence[str]] | None
    """Of a mesh: ways through it, [["a", "b", "c"]], used in both directions. Default: nodes that hear each other
    send directly."""

    queue: str | None
    """Queue words (quell queues); --aqm overrides them. Default: "fq_codel"."""

    mcs: int | Literal["minstrel"] | None
    """Modulation and coding, 0 to 31 (0 to 7 with one spatial stream, 8 to 15 with two, and so on); or minstrel,
    which selects the rate. Default: 7."""

    streams: int | None
    """Spatial streams that minstrel may use, 1 to 4. Default: 1."""

    schedule: Sequence[Sequence[Literal[0] | str | int]] | None
    """MCSs and when they begin, as in [["0s", 0], ["25s", 1]]."""

    per: float | str | Sequence[float | str] | None
    """Probability that an MPDU is lost, or eight probabilities for MCS 0 to 7 (modulo 8). Default: 0."""

    snr: float | None
    """Signal-to-noise ratio in dB, which determines the probability of loss."""

    width: Literal[20, 40] | None
    """Width of the channel, MHz. Default: 20."""

    guard: Literal["long", "short"] | None
    """Guard interval: 800 or 400 ns. Default: "long"."""

    ampdu_frames: int | None
    """Largest number of MPDUs in an A-MPDU; a PPDU lasts at most 5.484 ms. Default: 64."""

    ampdu_bytes: int | None
    """Largest A-MPDU, bytes. Default: 65535."""

    ampdu: bool | None
    """Frames are aggregated to A-MPDUs. Default: true."""

    amsdu: Literal[0, 3839, 7935] | None
    """Bytes of an A-MSDU; 0: none; 7935 only without A-MPDUs. Default: 0."""

    hardware: int | None
    """PPDUs in the hardware below the queue, including the one on the air. Default: 2."""

    late: bool | None
    """Frames that arrive while a PPDU waits for the channel are added to it (ns-3, firmware that aggregates by
    itself); false: a PPDU contains the frames that were there when the hardware got it (ath9k). Default: false."""

    serve: Literal["airtime", "round_robin"] | None
    """Order of neighbours: mac80211's airtime deficits, or one PPDU each. Default: "airtime"."""

    retries: int | Literal["unlimited"] | None
    """Largest number of transmissions of an MPDU. Default: 7."""

    rts: bool | int | str | None
    """RTS and CTS precede data; a number: data of at least that many bytes. Default: false."""

    aifsn: int | None
    """Slots of idle channel before the backoff. Default: each access category's own."""

    cwmin: int | None
    """Smallest contention window, slots. Default: each access category's own."""

    cwmax: int | None
    """Largest contention window, slots. Default: each access category's own."""

    eifs: bool | None
    """Nodes that could not decode a frame wait for EIFS; false: all wait the same time after a collision, as in
    Bianchi's model. Default: true."""

    countdown: Literal["edca", "dcf"] | None
    """edca: a slot of the backoff counts when it begins; dcf: when it has passed. Default: "edca"."""

    node: Sequence[Node] | Node | None
    """A node of the cell; it takes rate and losses from [wifi] where it has none of its own."""

    noise: Noise | None
    """Bursts of noise (Gilbert-Elliott)."""


class Up(TypedDict, total=False):
    """The other direction; it takes from [link] what it does not have."""

    rate: str | None
    """Constant rate. Required, or trace or schedule."""

    trace: str | None
    """A file in Mahimahi's format, its path relative to the scenario's; or builtin: and one of lte, starlink,
    docsis, powerline, -up for the other direction, :SEED for another draw."""

    schedule: Sequence[Sequence[Literal[0] | str]] | None
    """Rates and when they begin, as in [["0s", "6.5mbit"], ["25s", "13mbit"]]."""

    delay: Literal[0] | str | None
    """One way, in both directions; part of every flow's rtt. Default: "0ms"."""

    shaper: Literal["line", "htb"] | None
    """line: a packet leaves the queue and takes its time at the rate; htb: a token bucket as Linux's, not with a
    trace. Default: "line"."""

    burst: int | str | None
    """Size of the token bucket. Default: 1600."""

    overhead: int | None
    """Link-layer bytes per packet that use up the rate: 14 Ethernet, 2 PPP, 0 IP alone. Default: 14, with a trace
    4."""

    framing: str | None
    """What the link makes of an IP packet, in words of tc-cake(8): "docsis", "pppoe-ptm ether-vlan", "overhead 44
    atm mpu 64"; the queue still sees overhead. Default: overhead alone."""

    nic: int | None
    """Packets in a plain FIFO below the queue, as in a device; 0 below a token bucket. Default: 0."""

    loss: float | str | None
    """Probability of loss behind the queue. Default: 0."""

    queue: str | None
    """Queue words (quell queues); --aqm overrides them. Default: "fq_codel"."""

    modem_rate: str | None
    """Rate of a modem or base station with a plain FIFO on the network's side of the queue: before it on the way
    down, behind it on the way up. Default: no modem."""

    modem_trace: str | None
    """The modem's rate as a trace, named as in trace."""

    modem_buffer: int | str | None
    """Bytes that the modem's FIFO holds. Default: 3 MB."""


class Link(TypedDict, total=False):
    """The bottleneck."""

    rate: str | None
    """Constant rate. Required, or trace or schedule."""

    trace: str | None
    """A file in Mahimahi's format, its path relative to the scenario's; or builtin: and one of lte, starlink,
    docsis, powerline, -up for the other direction, :SEED for another draw."""

    schedule: Sequence[Sequence[Literal[0] | str]] | None
    """Rates and when they begin, as in [["0s", "6.5mbit"], ["25s", "13mbit"]]."""

    delay: Literal[0] | str | None
    """One way, in both directions; part of every flow's rtt. Default: "0ms"."""

    shaper: Literal["line", "htb"] | None
    """line: a packet leaves the queue and takes its time at the rate; htb: a token bucket as Linux's, not with a
    trace. Default: "line"."""

    burst: int | str | None
    """Size of the token bucket. Default: 1600."""

    overhead: int | None
    """Link-layer bytes per packet that use up the rate: 14 Ethernet, 2 PPP, 0 IP alone. Default: 14, with a trace
    4."""

    framing: str | None
    """What the link makes of an IP packet, in words of tc-cake(8): "docsis", "pppoe-ptm ether-vlan", "overhead 44
    atm mpu 64"; the queue still sees overhead. Default: overhead alone."""

    nic: int | None
    """Packets in a plain FIFO below the queue, as in a device; 0 below a token bucket. Default: 0."""

    loss: float | str | None
    """Probability of loss behind the queue. Default: 0."""

    queue: str | None
    """Queue words (quell queues); --aqm overrides them. Default: "fq_codel"."""

    modem_rate: str | None
    """Rate of a modem or base station with a plain FIFO on the network's side of the queue: before it on the way
    down, behind it on the way up. Default: no modem."""

    modem_trace: str | None
    """The modem's rate as a trace, named as in trace."""

    modem_buffer: int | str | None
    """Bytes that the modem's FIFO holds. Default: 3 MB."""

    up: Up | None
    """The other direction; it takes from [link] what it does not have."""


class Hop(TypedDict, total=False):
    """A further queue behind the bottleneck; it takes nothing from [link]."""

    rate: str | None
    """Constant rate. Required, or trace or schedule."""

    trace: str | None
    """A file in Mahimahi's format, its path relative to the scenario's; or builtin: and one of lte, starlink,
    docsis, powerline, -up for the other direction, :SEED for another draw."""

    schedule: Sequence[Sequence[Literal[0] | str]] | None
    """Rates and when they begin, as in [["0s", "6.5mbit"], ["25s", "13mbit"]]."""

    delay: Literal[0] | str | None
    """One way, in both directions; part of every flow's rtt. Default: "0ms"."""

    shaper: Literal["line", "htb"] | None
    """line: a packet leaves the queue and takes its time at the rate; htb: a token bucket as Linux's, not with a
    trace. Default: "line"."""

    burst: int | str | None
    """Size of the token bucket. Default: 1600."""

    overhead: int | None
    """Link-layer bytes per packet that use up the rate: 14 Ethernet, 2 PPP, 0 IP alone. Default: 14, with a trace
    4."""

    framing: str | None
    """What the link makes of an IP packet, in words of tc-cake(8): "docsis", "pppoe-ptm ether-vlan", "overhead 44
    atm mpu 64"; the queue still sees overhead. Default: overhead alone."""

    nic: int | None
    """Packets in a plain FIFO below the queue, as in a device; 0 below a token bucket. Default: 0."""

    loss: float | str | None
    """Probability of loss behind the queue. Default: 0."""

    queue: str | None
    """Queue words (quell queues); --aqm overrides them. Default: "fq_codel"."""

    modem_rate: str | None
    """Rate of a modem or base station with a plain FIFO on the network's side of the queue: before it on the way
    down, behind it on the way up. Default: no modem."""

    modem_trace: str | None
    """The modem's rate as a trace, named as in trace."""

    modem_buffer: int | str | None
    """Bytes that the modem's FIFO holds. Default: 3 MB."""


class Class(TypedDict, total=False):
    """A class of the link's queue, htb, prio, ets or drr."""

    id: str | None
    """Number of the class as in tc, in hexadecimal digits; in prio and ets 1:1 is the first band. Required."""

    parent: str | None
    """In htb: the class above it, from which it borrows. Default: none: it is at the top."""

    rate: str | None
    """In htb: the rate that it is sure of. Required in htb."""

    ceil: str | None
    """In htb: the rate up to which it may borrow. Default: its rate."""

    burst: int | str | None
    """In htb: bytes that it may send at once at its rate. Default: 1600, and a nanosecond of the rate."""

    cburst: int | str | None
    """In htb: bytes that it may send at once at its ceiling. Default: 1600, and a nanosecond of the rate."""

    prio: int | None
    """In htb: which leaves send and borrow first, 0 before 7. Default: 0."""

    quantum: int | None
    """In htb and drr: bytes per round, among leaves of one priority. Default: in htb the rate in bytes over r2q,
    1000 to 200000."""

    dscp: str | None
    """Packets with one of these DSCPs go to the class, as EF,CS6; a packet has to meet all of dscp, fwmark and host
    that are given."""

    fwmark: int | None
    """Packets with this mark of the firewall go to the class."""

    host: str | None
    """Packets from or to this host go to the class."""

    queue: str | None
    """Words of the queue in the class, if it has no classes below it. Default: a pfifo."""

    direction: Literal["down", "up"] | None
    """Whose queue has the class: that of [link] or of [link.up]. Default: "down"."""


_From = TypedDict("_From", {"from": "str | None"}, total=False)


class Flow(_From, total=False):
    """A table of like flows."""

    kind: (
        Literal[
            "tcp",
            "cbr",
            "poisson",
            "onoff",
            "web",
            "call",
            "voip",
            "video_call",
            "game",
            "page",
            "video",
            "probe",
            "download",
            "upload",
            "backup",
            "ping",
        ]
        | None
    )
    """Kind of traffic; each has its own keys. Default: "tcp"."""

    name: str | None
    """What records call the flows and their application. Default: none."""

    count: int | None
    """Number of such flows; at most 65,535 in all tables together. Default: 4 for tcp, 1 for the others."""

    rtt: Literal[0] | str | None
    """Base round trip without queuing, including the links' delays; at least those delays. Default: twice the
    links' delays, or "20ms" where they have none."""

    start: Literal[0] | str | None
    """When the flows begin. Default: "0ms"."""

    stop: Literal[0] | str | None
    """When they stop. Default: never."""

    stagger: Literal[0] | str | None
    """Each flow begins within this much of start, drawn from the seed. Default: "0ms"."""

    dscp: str | int | None
    """DSCP of the data, as "EF", "AF41", "CS1", "LE" or 0 to 63; ACKs have CS0, as Linux's. Default: "CS0"."""

    fwmark: int | None
    """The firewall's mark of its packets, for cake fwmark. Default: 0."""

    direction: Literal["down", "up"] | None
    """Direction of the data: through [link] or [link.up]; not in a cell. Default: "down"."""

    hops: Sequence[int] | None
    """The first and the last queue of the path that the flow passes, 0 being [link]; not in a cell. Default:
    all."""

    host: str | None
    """The flow's host behind the bottleneck, which sends on the way up and receives on the way down: cake shares
    the link among hosts; not in a cell, whose hosts are its nodes. Default: one for each rtt and ecn."""

    to_host: str | None
    """The host at the other end; not in a cell. Default: one server for all."""

    to: str | None
    """In a cell: the node that receives; *: such a flow for every node but the sender. Default: "*", or the first
    node if another one sends."""

    ac: Literal["be", "vi", "vo"] | None
    """In a cell: access category of data and ACKs: best effort, video or voice. Default: "be"."""

    cc: (
        Literal[
            "newreno",
            "reno",
            "cubic",
            "bic",
            "bic_ns3",
            "bbr",
            "bbr3",
            "dctcp",
            "prague",
            "vegas",
            "westwood",
            "illinois",
            "ledbat",
            "ledbat++",
        ]
        | None
    )
    """Congestion control; reno is newreno. Default: "cubic"."""

    rfc9438: bool | None
    """CUBIC per RFC 9438 where Linux differs. Default: false."""

    rtt_scaling: Literal["additive", "rate"] | None
    """Prague behaves as if its round trip were 15 ms longer (additive), or 25 ms at least (rate). Default:
    "additive"."""

    beta: float | None
    """BIC's multiplicative decrease. Default: 0.8."""

    ecn: bool | None
    """tcp, web, page, video, probe, download, upload, backup: ECN is negotiated. Default: false; true for dctcp and
    prague. cbr, poisson, onoff: packets are sent with ECT(0). Default: false."""

    ect: Literal[0, 1] | None
    """Packets are sent with ECT(0) or ECT(1). Default: 0; 1 for prague."""

    mss: int | None
    """Payload bytes per segment. Default: 1448."""

    iw: int | None
    """Initial window, packets. Default: 10."""

    min_rto: Literal[0] | str | None
    """Minimum retransmission timeout. Default: "200ms"."""

    rto: Literal["linux", "ns3"] | None
    """Retransmission timeout: Linux's srtt + max(4 rttvar, min_rto), or ns-3's max(srtt + 4 rttvar, min_rto).
    Default: "linux"."""

    delack: int | None
    """Segments per ACK. Default: 2."""

    delack_timeout: Literal[0] | str | None
    """Longest time that an ACK waits for another segment. Default: "40ms"."""

    sack: bool | None
    """SACK with RACK-TLP; false: NewReno (RFC 6582). Default: true."""

    limited_transmit: bool | None
    """RFC 3042. Default: true."""

    pacing: bool | None
    """pacing, as Linux paces with fq; BBR, BBRv3 and Prague always pace. Default: false."""

    buffer: int | str | None
    """Receive window; at least one segment. Default: "6mb"."""

    rate: str | None
    """tcp, web, page, video, probe, download, upload, backup: rate at which the application sends. Default:
    "unlimited". cbr: rate of the IP packets. Default: "1mbit". poisson: mean rate of the IP packets. Default:
    "1mbit"."""

    bytes: int | str | None
    """Bytes to send. Default: without end."""

    size: int | str | None
    """cbr, onoff: IP bytes per packet. Default: 1500. poisson: IP bytes per packet; exp:: the mean of an
    exponential distribution. Default: 1500. web: bytes of a transfer; exp:: the mean of an exponential
    distribution. Default: "exp:64kb". ping: IP bytes per packet. Default: 84."""

    on: Literal[0] | str | None
    """Length of every on phase; the first phase is one. Default: "5s"."""

    off: Literal[0] | str | None
    """Length of every off phase. Default: "5s"."""

    gap_on: Literal[0] | str | None
    """Mean of the exponential gaps between packets in an on phase. Default: "1ms"."""

    gap_off: Literal[0] | str | None
    """The same in an off phase. Default: "30ms"."""

    arrivals: float | None
    """Transfers that begin per second, as a Poisson process. Default: 5."""

    codec: Literal["g711", "g729", "opus"] | None
    """How speech is coded: 64, 8 or 32 kbit/s. Default: "g711"."""

    start_rate: str | None
    """Rate at which each end begins. Default: "300kbit"."""

    max_rate: str | None
    """Rate that neither end exceeds. Default: "2.5mbit"."""

    states: int | None
    """States of the world per second. Default: 60."""

    commands: int | None
    """Commands per second, the other way. Default: 30."""

    http: Literal["h2", "http/1.1"] | None
    """HTTP/2 on one connection, or HTTP/1.1 on six. Default: "h2"."""

    think: Literal[0] | str | None
    """Mean of the exponential pauses between a page and the next. Default: "5s"."""

    adaptation: Literal["buffer", "rate"] | None
    """What chooses the quality: the level of the buffer or the throughput of the last segments. Default:
    "buffer"."""

    interval: Literal[0] | str | None
    """Time between requests to a reflector. Default: "300ms"."""

    jitter: Literal[0] | str | None
    """Mean of the exponential time that a reflector takes to answer. Default: "1ms"."""

    loss: float | str | None
    """Probability that it does not answer. Default: 0.01."""

    timestamps: bool | None
    """Answers say when the request arrived, so that the delay of each direction is known. Default: true."""


_Class = TypedDict("_Class", {"class": "Sequence[Class] | Class | None"}, total=False)


class Keys(_Class, total=False):
    """What to simulate."""

    name: str | None
    """The scenario's name in reports and records. Default: the file's name."""

    duration: Literal[0] | str | None
    """Simulated time, at most 39 h. Default: "60s"."""

    warmup: Literal[0] | str | None
    """Time at the start that is left out of every statistic. Default: "5s", or a quarter of a shorter run."""

    seeds: int | None
    """Runs per queue. Default: 5."""

    seed: int | None
    """Random seed of the first run, from which the other runs' seeds derive; a record names the seed that repeats
    it. Default: 1."""

    flow: Sequence[Flow] | Flow | None
    """A table of like flows."""

    hop: Sequence[Hop] | Hop | None
    """A further queue behind the bottleneck; it takes nothing from [link]."""

    link: Link | None
    """The bottleneck."""

    wifi: Wifi | None
    """An 802.11n cell in place of [link]."""
