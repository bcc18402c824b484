//! Tests of the values that `[wifi]` yields, and of its errors.

use super::wifi::{Loss, Rate};
use super::{Overrides, Scenario};

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, "x.toml", &Overrides::default()).map_err(|e| e.to_string())
}

#[test]
fn bad_tables_are_refused_with_their_line() {
    let nodes = "[[wifi.node]]\nname = \"ap\"\n[[wifi.node]]\nname = \"a\"\n";
    for (text, message) in [
        (
            "stations = 0",
            "x.toml:2: wifi.stations: \"0\" is too small; write 1 to 99",
        ),
        (
            "stations = 2\n[[wifi.node]]\nname = \"a\"",
            "x.toml:3: wifi.node: `stations` and [[wifi.node]] exclude each other",
        ),
        (
            "[[wifi.node]]\nname = \"a\"",
            "x.toml:2: wifi.node: there are no stations",
        ),
        (
            "stations = 1\nmcs = 32",
            "x.toml:3: wifi.mcs: there is no MCS 32 in 802.11n; write 0 to 31",
        ),
        (
            "stations = 1\nmcs = \"fast\"",
            "x.toml:3: wifi.mcs: \"fast\" is not a whole number",
        ),
        (
            "stations = 1\nschedule = [[\"1s\", 3]]",
            "x.toml:3: wifi.schedule: the first step is not at 0s",
        ),
        (
            "stations = 1\nmcs = 3\nstreams = 2",
            "x.toml:4: wifi.streams: `streams` is for mcs = \"minstrel\" alone",
        ),
        (
            "stations = 1\nper = [0.1, 0.2]",
            "x.toml:3: wifi.per: not one probability, or eight",
        ),
        (
            "stations = 1\nper = 0.1\nsnr = 20",
            "x.toml:4: wifi.snr: `per` and `snr` exclude each other; keep one of them",
        ),
        (
            "stations = 1\nwidth = 80",
            "x.toml:3: wifi.width: \"80\" is not a width of 802.11n; write 20 or 40",
        ),
        (
            "stations = 1\namsdu = 4000",
            "x.toml:3: wifi.amsdu: \"4000\" is not a size of A-MSDUs",
        ),
        (
            "stations = 1\nhardware = 0",
            "x.toml:3: wifi.hardware: \"0\" is too small",
        ),
        (
            "stations = 1\nqueue = \"codle\"",
            "x.toml:3: wifi.queue: unknown queue `codle`",
        ),
        (
            "stations = 1\nroutes = [[\"ap\", \"sta1\"]]",
            "x.toml:3: wifi.routes: only a mesh has routes",
        ),
        (
            "stations = 1\nspeed = 3",
            "x.toml:3: wifi: unknown key in [wifi] `speed`",
        ),
        (
            &format!("{nodes}hears = [\"a\"]"),
            "x.toml:6: wifi.node[2].hears: a is in its own list",
        ),
        (
            &format!("{nodes}hears = [\"c\"]"),
            "x.toml:6: wifi.node[2].hears: unknown node `c`",
        ),
        (
            &format!("{nodes}hears = []"),
            "x.toml:2: wifi.node: a and the access point ap do not hear each other",
        ),
        (
            &format!("{nodes}[[wifi.node]]\nname = \"a\""),
            "x.toml:7: wifi.node[3].name: two nodes are called a",
        ),
        (
            &format!("{nodes}mcs = 40"),
            "x.toml:6: wifi.node[2].mcs: there is no MCS 40",
        ),
        (
            "stations = 1\n[link]\nrate = \"1mbit\"",
            "x.toml:3: link: `link` and [wifi] exclude each other",
        ),
        (
            "stations = 1\n[[flow]]\nto = \"sta2\"",
            "x.toml:4: flow[1].to: unknown node `sta2`; did you mean `sta1`?",
        ),
        (
            "stations = 1\n[[flow]]\nfrom = \"sta1\"\nto = \"sta1\"",
            "x.toml:5: flow[1].to: the sender and the receiver are the same node",
        ),
        (
            "stations = 1\n[[flow]]\ndirection = \"up\"",
            "x.toml:4: flow[1].direction: `direction` is not for a cell",
        ),
        (
            "stations = 1\n[[flow]]\nac = \"bk\"",
            "x.toml:4: flow[1].ac: unknown access category `bk`",
        ),
    ] {
        let e = parse(&format!("[wifi]\n{text}")).expect_err(text);
        assert!(e.starts_with(message), "{e}\n{message}");
    }
}

#[test]
fn a_mesh_needs_a_route_between_nodes_that_do_not_hear_each_other() {
    let mesh = "[wifi]\nmode = \"mesh\"\nROUTES[[wifi.node]]\nname = \"a\"\nhears = [\"b\"]\n[[wifi.node]]\nname = \"b\"\n[[wifi.node]]\nname = \"c\"\n[[flow]]\nfrom = \"a\"\nto = \"c\"";
    let e = parse(&mesh.replace("ROUTES", "")).unwrap_err();
    assert!(e.starts_with("x.toml:12: flow[1].to: there is no route from a to c, which do not hear each other; write routes"), "{e}");
    let e = parse(&mesh.replace("ROUTES", "routes = [[\"a\", \"c\"]]\n")).unwrap_err();
    assert!(
        e.starts_with("x.toml:3: wifi.routes: a and c do not hear each other"),
        "{e}"
    );
    let s = parse(&mesh.replace("ROUTES", "routes = [[\"c\", \"b\", \"a\"]]\n")).unwrap();
    let wifi = s.wifi.unwrap();
    assert_eq!(wifi.way(0, 2).unwrap(), [0, 1, 2]);
    assert_eq!(wifi.way(2, 0).unwrap(), [2, 1, 0]);
}

#[test]
fn every_node_is_a_table_and_a_written_scenario_reads_back() {
    let text = "[wifi]\nstations = 3\nqueue = \"codel\"\nwidth = 40\nguard = \"short\"\nsnr = 20.5\nmcs = \"minstrel\"\nstreams = 2\namsdu = 3839\nserve = \"round_robin\"\n\
                retries = \"unlimited\"\neifs = false\ncountdown = \"dcf\"\nrts = 500\ncwmin = 7\nnoise = { loss = 0.5, quiet = \"1s\" }\n[[flow]]\ncount = 2\n[[flow]]\nfrom = \"*\"\nto = \"ap\"\nac = \"vo\"\nkind = \"cbr\"";
    let s = parse(text).unwrap();
    assert_eq!(s.flows.len(), 6);
    assert_eq!(s.flow_count(), 9);
    assert_eq!(
        parse(&s.to_toml()).unwrap(),
        Scenario {
            name: s.name.clone(),
            ..s.clone()
        },
        "{}",
        s.to_toml()
    );
    assert_eq!(s.link.queue, "codel");
    let over = Overrides {
        queue: Some("pie".into()),
        ..Overrides::default()
    };
    let o = Scenario::parse(text, "x.toml", &over).unwrap();
    assert_eq!(o.link.queue, "pie");
    let rate = Overrides {
        rate: Some("1mbit".into()),
        ..Overrides::default()
    };
    let e = Scenario::parse(text, "x.toml", &rate)
        .unwrap_err()
        .to_string();
    assert!(e.starts_with("rate: a cell's rates are its MCSs"), "{e}");
}

#[test]
fn a_node_keeps_its_own_and_takes_the_rest_from_the_cell() {
    let text = "[wifi]\nmcs = 5\nper = 0.1\n[[wifi.node]]\nname = \"ap\"\n[[wifi.node]]\nname = \"a\"\nsnr = 30\nqueue = \"pie\"\n\
                [[wifi.node]]\nname = \"b\"\nschedule = [[\"0s\", 0], [\"25s\", 1]]\n";
    let nodes = parse(text).unwrap().wifi.unwrap().nodes;
    assert_eq!(
        (&nodes[1].rate, &nodes[1].loss),
        (&Rate::Fixed(5), &Loss::Snr(30.0))
    );
    assert_eq!(nodes[1].queue.as_deref(), Some("pie"));
    assert!(matches!(&nodes[2].rate, Rate::Schedule(s) if s.len() == 2));
    assert_eq!(nodes[2].loss, Loss::Fixed([0.1; 8]));
}
