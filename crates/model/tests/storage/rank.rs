//! Reproduces Table I of CLOUD '16 from the shipped scenarios, and checks properties of random compositions.

use pellucid_model::composition::path::{Direction, Path};
use pellucid_model::composition::rank::{self, Ranking};
use pellucid_model::composition::{Acknowledge, Composition, Forwarder, Layer, Mediator, Place, Replication};

fn scenario(file: &str) -> Composition {
    let path = format!("../storage/scenarios/{file}.toml");
    Composition::parse(&path, &std::fs::read_to_string(&path).unwrap()).unwrap()
}

fn five() -> Vec<Composition> {
    ["gc", "gc-vs", "gc-vb", "nc", "swi"].map(scenario).to_vec()
}

fn places(places: &[rank::Place]) -> Vec<(u32, &str, u32)> {
    places.iter().map(|p| (p.rank, p.composition.as_str(), p.links)).collect()
}

#[test]
fn shipped_scenarios_reproduce_table_1() {
    let ranking = Ranking::of(&five());
    assert_eq!(
        places(&ranking.read),
        [(1, "GC", 0), (2, "GC-Vs", 2), (2, "GC-Vb", 2), (2, "NC", 2), (3, "SWI", 4)]
    );
    assert_eq!(
        places(&ranking.write),
        [(1, "GC", 3), (2, "GC-Vs", 4), (2, "NC", 4), (2, "SWI", 4), (3, "GC-Vb", 15)]
    );
    for place in ranking.read.iter().chain(&ranking.write) {
        assert_eq!(place.hops.len(), place.links as usize, "{}", place.composition);
    }
}

fn links(file: &str) -> (u32, u32) {
    let c = scenario(file);
    (Path::of(&c, Direction::Read).links(), Path::of(&c, Direction::Write).links())
}

#[test]
fn balancer_and_gateway_make_six_links_and_erasure_code_four() {
    assert_eq!(links("s3"), (6, 6));
    assert_eq!(links("erasure"), (4, 4));
}

#[test]
fn findings_name_double_replication_with_its_factor_and_the_proxy() {
    let findings = Ranking::of(&five()).findings;
    let double = findings.iter().find(|f| f.finding.title == "GC-Vb: both layers replicate").unwrap();
    assert_eq!(double.factor, Some(9.0));
    assert!(
        double.finding.evidence.contains("9 bytes are written for one, 3 times"),
        "{}",
        double.finding.evidence
    );
    let proxy =
        findings.iter().find(|f| f.finding.title.starts_with("SWI: every byte passes a proxy")).unwrap();
    assert_eq!(proxy.factor, None);
    assert_eq!(findings.len(), 2, "GC, GC-Vs and NC have no findings: {findings:?}");
}

#[test]
fn paths_are_drawn_with_their_counts() {
    let all: Vec<Composition> = five().into_iter().chain(["s3", "erasure"].map(scenario)).collect();
    let text = rank::text(&all, &Ranking::of(&all));
    let file = "tests/snapshots/rank.txt";
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(file, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(file).unwrap(), "set UPDATE_SNAPSHOTS=1 to update {file}");
}

/// A linear congruential generator (Knuth's MMIX constants).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % n
    }

    fn place(&mut self) -> Place {
        [Place::Process, Place::Machine, Place::Rack, Place::Elsewhere][self.below(4) as usize]
    }

    fn mediator(&mut self, name: &str) -> Mediator {
        Mediator { name: name.to_string(), runs: self.place(), instances: 1, link_bytes_per_s: None }
    }

    fn layer(&mut self) -> Layer {
        let kinds = [Replication::None, Replication::Parallel, Replication::Chain, Replication::Erasure];
        let replication = kinds[self.below(4) as usize];
        let several = matches!(replication, Replication::Parallel | Replication::Chain);
        let copies = if several { 1 + self.below(5) } else { 1 };
        let erasure = replication == Replication::Erasure;
        let acknowledge = match (replication, self.below(3)) {
            (Replication::Parallel, 0) => Acknowledge::Quorum,
            (Replication::Parallel, 1) => Acknowledge::Copies(1 + self.below(copies)),
            _ => Acknowledge::All,
        };
        let mediators = self.below(3);
        Layer {
            system: "layer".to_string(),
            runs: self.place(),
            mediators: (0..mediators).map(|i| self.mediator(&format!("mediator {i}"))).collect(),
            replication,
            copies,
            fragments: if erasure { (1 + self.below(6), self.below(4)) } else { (0, 0) },
            forwarded_by: [Forwarder::Writer, Forwarder::Primary][self.below(2) as usize],
            copies_run: self.place(),
            acknowledge,
        }
    }

    fn composition(&mut self) -> Composition {
        Composition {
            name: "any".to_string(),
            compute: "compute".to_string(),
            data: self.layer(),
            storage: self.layer(),
            commit: None,
            rename_copies: None,
        }
    }
}

fn counts(c: &Composition) -> (u32, u32) {
    (Path::of(c, Direction::Read).links(), Path::of(c, Direction::Write).links())
}

/// Returns every composition with one more component than `c`: a mediator, a copy or a fragment.
fn with_one_more(c: &Composition, random: &mut Random) -> Vec<Composition> {
    let mut more = Vec::new();
    for of in [(|c| &mut c.data) as fn(&mut Composition) -> &mut Layer, |c| &mut c.storage] {
        let mut change = |by: &mut dyn FnMut(&mut Layer)| {
            let mut changed = c.clone();
            by(of(&mut changed));
            more.push(changed);
        };
        let mediator = random.mediator("one more");
        change(&mut |layer| {
            let at = layer.mediators.len() / 2;
            layer.mediators.insert(at, mediator.clone());
        });
        change(&mut |layer| match layer.replication {
            Replication::Parallel | Replication::Chain => layer.copies += 1,
            Replication::Erasure => layer.fragments.1 += 1,
            Replication::None => {}
        });
        change(&mut |layer| layer.fragments.0 += u32::from(layer.replication == Replication::Erasure));
        for replication in [Replication::Parallel, Replication::Chain] {
            change(&mut |layer| {
                if layer.replication == Replication::None {
                    (layer.replication, layer.copies) = (replication, 2);
                }
            });
        }
    }
    more
}

/// Returns every composition with one component of `c` moved one step further away.
fn with_one_further(c: &Composition) -> Vec<Composition> {
    let further = |place: &mut Place| {
        *place = match place {
            Place::Process => Place::Machine,
            Place::Machine => Place::Rack,
            Place::Rack | Place::Elsewhere => Place::Elsewhere,
        };
    };
    let mut all = Vec::new();
    for of in [(|c| &mut c.data) as fn(&mut Composition) -> &mut Layer, |c| &mut c.storage] {
        let mut change = |by: &dyn Fn(&mut Layer)| {
            let mut changed = c.clone();
            by(of(&mut changed));
            all.push(changed);
        };
        change(&|layer| further(&mut layer.runs));
        change(&|layer| further(&mut layer.copies_run));
        for i in 0..of(&mut c.clone()).mediators.len() {
            change(&|layer| further(&mut layer.mediators[i].runs));
        }
    }
    all
}

#[test]
fn greater_distance_never_lowers_a_count() {
    let mut raised = 0;
    for seed in 0..20_000 {
        let c = Random(seed).composition();
        let before = counts(&c);
        for further in with_one_further(&c) {
            let after = counts(&further);
            assert!(
                after.0 >= before.0 && after.1 >= before.1,
                "seed {seed}: {before:?} {after:?}\n{c:#?}\n{further:#?}"
            );
            raised += usize::from(after != before);
        }
    }
    assert!(raised > 10_000, "{raised}");
}

#[test]
fn additional_component_never_lowers_a_count() {
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let c = random.composition();
        let before = counts(&c);
        for more in with_one_more(&c, &mut random) {
            let after = counts(&more);
            assert!(
                after.0 >= before.0 && after.1 >= before.1,
                "seed {seed}: {before:?} {after:?}\n{c:#?}\n{more:#?}"
            );
        }
        for direction in [Direction::Read, Direction::Write] {
            let path = Path::of(&c, direction);
            assert_eq!(path.hops().len(), path.links() as usize, "seed {seed}");
            let drawn: u32 =
                path.drawing().iter().map(|l| l.rsplit(' ').next().unwrap().parse::<u32>().unwrap()).sum();
            assert_eq!(drawn, path.links(), "seed {seed}: {:#?}", path.drawing());
        }
    }
}

#[test]
fn components_in_one_place_have_no_hops() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let mut c = random.composition();
        for layer in [&mut c.data, &mut c.storage] {
            (layer.runs, layer.copies_run) = (Place::Machine, Place::Process);
            layer.mediators.iter_mut().for_each(|m| m.runs = Place::Machine);
        }
        assert_eq!(counts(&c), (0, 0), "seed {seed}");
    }
}
