# Queues of many kinds that are loaded for two seconds with 12 Mbit/s each, at 8 Mbit/s: in the oracle's kernel, for tests/test_watch.py.
# PYTHON is the interpreter. Ends with the traffic in the background.
set -e
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cat >/run/add.py <<'E1'
"""A discipline without options below class 1:10, of a kind that tc may not know."""
import socket, struct, sys
name = sys.argv[2].encode() + b"\0"
attributes = struct.pack("=HH", 4 + len(name), 1) + name + b"\0" * (-len(name) % 4) + struct.pack("=HH", 4, 0x8002)
body = struct.pack("=BxxxiIII", 0, socket.if_nametoindex(sys.argv[1]), 0x100000, 0x10010, 0) + attributes
asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
asked.send(struct.pack("=IHHII", 16 + len(body), 36, 0x605, 1, 0) + body)
sys.exit(-struct.unpack_from("=i", asked.recv(4096), 16)[0])
E1
cat >/run/send.py <<'E1'
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
end, n = time.monotonic() + 2.05, 0
while time.monotonic() < end:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, n % 2)
    for i in range(1, 11):
        s.sendto(bytes(1000), (f"10.0.{i}.2", 9000 + n % 5))
    n += 1
    time.sleep(0.00068)
E1
ip netns add s
i=0
for words in 'cake bandwidth 8mbit diffserv4' 'fq_codel limit 500' 'pie limit 200' dualpi2 'codel limit 100' fq_pie fq \
  'red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 probability 0.02' sfq htb; do
  i=$((i + 1))
  ip link add c$i type veth peer name s$i netns s
  ip addr add 10.0.$i.1/24 dev c$i
  ip link set c$i up
  ip -n s link set s$i up
  ip neigh replace 10.0.$i.2 lladdr "$(ip -n s -br link show s$i | awk '{print $3}')" dev c$i nud permanent
  case $words in
    cake*) tc qdisc add dev c$i root handle 1: $words ;;
    *)
      tc qdisc add dev c$i root handle 1: htb default 10
      tc class add dev c$i parent 1: classid 1:10 htb rate 8mbit
      case $words in
        htb) ;;
        dualpi2) "$PYTHON" /run/add.py c$i dualpi2 ;;
        *) tc qdisc add dev c$i parent 1:10 handle 10: $words ;;
      esac
      ;;
  esac
done
"$PYTHON" /run/send.py &
