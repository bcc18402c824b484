# `quell tune` redirects all incoming packets to an interface whose name is a shell command: QUELL FOLDER.
mount -t tmpfs none /run
cd "$2" || exit
name='$(id>F)'
ip link add wan type veth peer name other
ip link add "$name" type ifb
tc qdisc add dev wan handle ffff: ingress
tc filter add dev wan parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 \
  action mirred egress redirect dev "$name" || exit
seen() { tc filter show dev wan ingress | sed 's/index [0-9]*//'; tc qdisc show dev wan; }
seen >before
if "$1" tune --rate 5mbit/1mbit --duration 5s --seeds 2 --trials 1 --queues pfifo --for bulk --apply wan --replace \
  >applied 2>&1
then echo applied; else cat applied; fi
"$1" tune --undo wan
seen >after
cmp before after && echo same
cat F 2>/dev/null || echo nothing ran
