"""`quell live` with nftables' queue, which many kernels lack: in the oracle's kernel, which runs as a program."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from conftest import QUELL_LIVE
from oracle import in_guest

GUEST = """
set -e
ip link add rb type veth peer name other
ip link set rb up; ip link set other up; ip link set lo up
ip addr add 10.9.2.1/24 dev rb
ip neigh add 10.9.2.2 lladdr 02:00:00:00:00:02 dev rb
mkdir -p /run/quell
say() { echo "== $1"; nft list ruleset; }
nft add table inet strangers
"$1" --dev rb --rate 8mbit --ingress 8mbit --status /run/s --duration 7s 2>/run/errors &
sleep 1
say made
python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for k in range(20): s.sendto(bytes(100), ("10.9.2.2", 9))
'
sleep 1
say counted
python3 -c '
import socket
s = socket.socket(socket.AF_UNIX); s.connect("/run/s")
print(b"".join(iter(lambda: s.recv(65536), b"")).decode())
'
nft flush ruleset
nft add table inet strangers
sleep 1
say back
nft add rule inet quell_live_rb_310 egress oifname '"rb"' meta mark != 0x7175656c counter queue flags bypass to 9
sleep 1
say cleared
wait
say ended
"$1" --dev rb --rate 8mbit --quiet &
sleep 1
kill -9 $!
sleep 0.2
say killed
"$1" --restore
say restored
echo "== errors"
cat /run/errors
"""


@pytest.mark.guest
@pytest.mark.real_time
def test_one_table_of_its_own_is_made_kept_and_removed_whole(tmp_path: Path) -> None:
    if shutil.which("nft") is None:
        pytest.skip("there is no nft")
    script = tmp_path / "guest.sh"
    script.write_text(GUEST)
    done = in_guest(script, QUELL_LIVE)
    said = done.stdout + done.stderr
    parts = dict(re.findall(r"^== (\w+)\n(.*?)(?=^== |\Z)", done.stdout, re.MULTILINE | re.DOTALL))
    assert done.returncode == 0, said
    ours = "table inet quell_live_rb_"
    for name in ("made", "counted", "back", "cleared"):
        assert parts[name].count(ours) == 1, said
        assert parts[name].count("queue flags bypass to ") == 2, said
    assert re.search(r'oifname "rb" meta mark != 0x7175656c counter packets 2\d ', parts["counted"]), said
    assert '"read": 2' in parts["counted"], said
    for name in ("ended", "restored"):
        assert ours not in parts[name], said
        assert "table inet strangers" in parts[name], said
    assert ours in parts["killed"], said
    assert "2 rules put back that another program had removed" in parts["errors"], said
    assert "1 rule of an earlier quell live removed that another program had put back" in parts["errors"], said
