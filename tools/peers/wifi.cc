// An 802.11n cell in ns-3, like quell's `[wifi]`: an access point, stations around it, one flow for each.
// wifi MCS STATIONS down|up udp|tcp LIMIT END_S SEED [measure]
// prints: goodput_mbit delay_ms cpu_seconds
// The first two seconds are left out. Delay is measured only with `measure`, which costs time: from a packet's arrival
// at the sender's queue to its arrival at the receiver. The clock is the process's own CPU time from the warm-up to the
// end.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"
#include "ns3/wifi-module.h"

#include "ns3.h"

using namespace ns3;

namespace {

constexpr double WARMUP_S = 2;
constexpr uint16_t PORT = 5000;

std::unordered_map<uint64_t, Time> g_queued;
double g_delay_s = 0;
uint64_t g_delayed = 0;

void Queued(Ptr<const Packet> packet)
{
    g_queued[packet->GetUid()] = Simulator::Now();
}

void Arrived(Ptr<const Packet> packet)
{
    auto it = g_queued.find(packet->GetUid());
    if (it == g_queued.end())
    {
        return;
    }
    if (Simulator::Now().GetSeconds() >= WARMUP_S)
    {
        g_delay_s += (Simulator::Now() - it->second).GetSeconds();
        ++g_delayed;
    }
    g_queued.erase(it);
}

// Like quell's access point: each station has a queue of its own, which keeps packets until they are acknowledged.
class PerStation : public QueueDisc
{
  public:
    explicit PerStation(uint32_t limit)
        : m_limit(limit)
    {
    }

    void Acked(Ptr<const WifiMpdu> mpdu)
    {
        --m_held[mpdu->GetHeader().GetAddr1()];
    }

  private:
    bool DoEnqueue(Ptr<QueueDiscItem> item) override
    {
        int& held = m_held[Mac48Address::ConvertFrom(item->GetAddress())];
        if (held >= static_cast<int>(m_limit))
        {
            DropBeforeEnqueue(item, "full");
            return false;
        }
        ++held;
        return GetInternalQueue(0)->Enqueue(item);
    }

    Ptr<QueueDiscItem> DoDequeue() override
    {
        return GetInternalQueue(0)->Dequeue();
    }

    bool CheckConfig() override
    {
        if (GetNInternalQueues() == 0)
        {
            AddInternalQueue(CreateObject<DropTailQueue<QueueDiscItem>>());
        }
        return true;
    }

    void InitializeParams() override
    {
    }

    uint32_t m_limit;
    std::map<Mac48Address, int> m_held;
};

// Datagrams of 1500 bytes of IP at random times.
struct Poisson
{
    Ptr<Socket> socket;
    Ptr<ExponentialRandomVariable> gap;

    void Send()
    {
        socket->Send(Create<Packet>(1472));
        Simulator::Schedule(Seconds(gap->GetValue()), &Poisson::Send, this);
    }
};

uint64_t Received(const ApplicationContainer& sinks)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < sinks.GetN(); ++i)
    {
        bytes += DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx();
    }
    return bytes;
}

} // namespace

int main(int argc, char** argv)
{
    if (argc < 8)
    {
        std::fprintf(stderr, "usage: wifi MCS STATIONS down|up udp|tcp LIMIT END_S SEED [measure]\n");
        return 2;
    }
    const std::string mcs = argv[1];
    const uint32_t count = std::atoi(argv[2]);
    const bool down = argv[3][0] == 'd';
    const bool tcp = argv[4][0] == 't';
    const std::string limit = argv[5];
    const double end = std::atof(argv[6]);
    const bool measure = argc > 8;

    RngSeedManager::SetRun(std::atoi(argv[7]));
    // quell's `newreno` is Linux's; ns-3's NewReno halves what is not SACKed, and grows half as fast with delayed ACKs.
    SetTcp("ns3::TcpLinuxReno");
    // ns-3 counts failures per station, and drops whichever frame meets the seventh in a row.
    Config::SetDefault("ns3::WifiRemoteStationManager::MaxSsrc", UintegerValue(100));
    // One plain FIFO per node; frames wait in it until they are acknowledged.
    Config::SetDefault("ns3::WifiMacQueue::MaxSize", StringValue(limit + "p"));
    Config::SetDefault("ns3::WifiMacQueue::MaxDelay", TimeValue(Seconds(100)));

    NodeContainer server(1);
    NodeContainer ap(1);
    NodeContainer stations(count);

    PointToPointHelper wire;
    wire.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    wire.SetChannelAttribute("Delay", StringValue("10ms"));
    wire.DisableFlowControl();
    wire.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("100000p"));
    NetDeviceContainer wired = wire.Install(server.Get(0), ap.Get(0));

    YansWifiPhyHelper phy;
    phy.SetChannel(YansWifiChannelHelper::Default().Create());
    phy.Set("ChannelSettings", StringValue("{36, 20, BAND_5GHZ, 0}"));
    WifiHelper wifi;
    wifi.SetStandard(WIFI_STANDARD_80211n);
    wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager", "DataMode", StringValue("HtMcs" + mcs));
    WifiMacHelper mac;
    const Ssid ssid("cell");
    mac.SetType("ns3::ApWifiMac", "Ssid", SsidValue(ssid));
    NetDeviceContainer apDevice = wifi.Install(phy, mac, ap);
    mac.SetType("ns3::StaWifiMac", "Ssid", SsidValue(ssid));
    NetDeviceContainer devices = wifi.Install(phy, mac, stations);

    // All stations have the same distance to the access point, so that no frame survives a collision.
    MobilityHelper mobility;
    auto places = CreateObject<ListPositionAllocator>();
    places->Add(Vector(0, 0, 0));
    for (uint32_t i = 0; i < count; ++i)
    {
        places->Add(Vector(i % 2 ? -1 : 1, 0, 0));
    }
    mobility.SetPositionAllocator(places);
    mobility.Install(NodeContainer(ap, stations));

    InternetStackHelper stack;
    stack.InstallAll();
    Ipv4AddressHelper address("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer wiredAddress = address.Assign(wired);
    address.NewNetwork();
    NetDeviceContainer air(apDevice, devices);
    Ipv4InterfaceContainer airAddress = address.Assign(air);
    TrafficControlHelper::Default().Uninstall(air);
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    if (down && count > 1)
    {
        auto queue = CreateObject<PerStation>(std::atoi(limit.c_str()) / count);
        ap.Get(0)->GetObject<TrafficControlLayer>()->SetRootQueueDiscOnDevice(apDevice.Get(0), queue);
        auto m = DynamicCast<WifiNetDevice>(apDevice.Get(0))->GetMac();
        m->TraceConnectWithoutContext("AckedMpdu", MakeCallback(&PerStation::Acked, queue));
    }

    const double offered = 1.5 * 6.5e6 * (mcs == "3" ? 4 : 10) / count;
    ApplicationContainer sinks;
    std::vector<Poisson> sources(count);
    for (uint32_t i = 0; i < count; ++i)
    {
        Ptr<Node> from = down ? server.Get(0) : stations.Get(i);
        Ptr<Node> to = down ? stations.Get(i) : server.Get(0);
        const uint16_t port = PORT + i;
        const InetSocketAddress there(down ? airAddress.GetAddress(1 + i) : wiredAddress.GetAddress(0), port);
        const std::string protocol = tcp ? "ns3::TcpSocketFactory" : "ns3::UdpSocketFactory";
        PacketSinkHelper sink(protocol, InetSocketAddress(Ipv4Address::GetAny(), port));
        sinks.Add(sink.Install(to));
        if (tcp)
        {
            BulkSendHelper sender(protocol, there);
            sender.SetAttribute("SendSize", UintegerValue(1448));
            sender.Install(from).Start(Seconds(1 + 0.01 * i));
        }
        else
        {
            Poisson& p = sources[i];
            p.socket = Socket::CreateSocket(from, UdpSocketFactory::GetTypeId());
            p.socket->Connect(there);
            p.gap = CreateObject<ExponentialRandomVariable>();
            p.gap->SetAttribute("Mean", DoubleValue(12000 / offered));
            Simulator::ScheduleWithContext(from->GetId(), Seconds(1), &Poisson::Send, &p);
        }
    }
    if (measure)
    {
        for (uint32_t i = 0; i < air.GetN(); ++i)
        {
            auto m = DynamicCast<WifiNetDevice>(air.Get(i))->GetMac();
            const bool sends = (i == 0) == down;
            m->TraceConnectWithoutContext(sends ? "MacTx" : "MacRx", sends ? MakeCallback(&Queued) : MakeCallback(&Arrived));
        }
    }

    double cpu = 0;
    uint64_t before = 0;
    Simulator::Schedule(Seconds(WARMUP_S), [&] {
        cpu = CpuSeconds();
        before = Received(sinks);
    });
    Simulator::Stop(Seconds(end));
    Simulator::Run();
    cpu = CpuSeconds() - cpu;
    std::printf("%.4f %.4f %.4f\n",
                (Received(sinks) - before) * 8e-6 / (end - WARMUP_S),
                g_delayed ? 1e3 * g_delay_s / g_delayed : 0.0,
                cpu);
    return 0;
}
