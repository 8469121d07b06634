//! Random programs: nested loops and branches over datasets with several partitionings. Their arithmetic is
//! sensitive to every order that execution must preserve.

use std::sync::Arc;

use pellucid_iterate::simulator::Random;
use pellucid_iterate::{Dataset, Incoming, Outcome, Outgoing, Plan, Program, Route};

type Numbers = Vec<u64>;

/// A program with its datasets, all of which are outputs.
pub struct TestProgram {
    pub plan: Arc<Plan>,
    pub datasets: Vec<Dataset<Numbers>>,
}

/// A set of datasets that stages use together.
struct Family {
    partitions: u32,
    datasets: Vec<Dataset<Numbers>>,
}

struct Generator {
    random: Random,
    families: Vec<Family>,
    stages: u32,
}

/// Combines two numbers by an operation that is neither commutative nor associative, to detect reordering.
fn mix(a: u64, b: u64) -> u64 {
    (a.rotate_left(7) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(a >> 9)
}

/// Generates a program from a seed.
pub fn random_program(seed: u64) -> TestProgram {
    let mut random = Random::new(seed);
    let mut program = Program::new(format!("random {seed}"));
    let mut families = Vec::new();
    for family in 0..2 + random.below(3) {
        let partitions = if family == 0 { 1 } else { 1 + random.below(6) as u32 };
        let datasets = (0..2 + random.below(2)).map(|number| {
            let name = format!("{family}.{number}");
            program.dataset(name, partitions, move |index| Ok(vec![mix(number, u64::from(index)), family]))
        });
        families.push(Family { partitions, datasets: datasets.collect() });
    }
    let mut generator = Generator { random, families, stages: 0 };
    generator.block(&mut program, 0);
    let datasets: Vec<_> = generator.families.into_iter().flat_map(|family| family.datasets).collect();
    datasets.iter().for_each(|&dataset| program.output(dataset));
    TestProgram { plan: program.build().unwrap(), datasets }
}

impl Generator {
    fn block(&mut self, program: &mut Program, depth: u32) {
        for _ in 0..2 + self.random.below(4) {
            self.stages += 1;
            let name = format!("s{}", self.stages);
            match self.random.below(if depth < 3 { 10 } else { 6 }) {
                0..=2 => self.transform(program, name),
                3 | 4 => self.exchange(program, name),
                5 => self.reduce(program, name),
                6 => {
                    let times = self.random.below(4);
                    program.times(name, times, |body| self.block(body, depth + 1));
                }
                7 => self.repeat(program, name, depth),
                _ => self.branch(program, name, depth),
            }
        }
    }

    fn pick(&mut self, family: usize) -> Dataset<Numbers> {
        let datasets = &self.families[family].datasets;
        datasets[self.random.below(datasets.len() as u64) as usize]
    }

    fn pick_family(&mut self) -> usize {
        self.random.below(self.families.len() as u64) as usize
    }

    fn transform(&mut self, program: &mut Program, name: String) {
        let family = self.pick_family();
        let write = self.pick(family);
        let salt = self.random.number();
        let reads: Vec<_> = self.families[family].datasets.clone();
        let read = reads[self.random.below(reads.len() as u64) as usize];
        if same(read, write) {
            program.transform(name, (), write, move |(), numbers| {
                numbers.iter_mut().for_each(|number| *number = mix(*number, salt));
                Ok(())
            });
        } else {
            program.transform(name, read, write, move |from, to| {
                for (to, from) in to.iter_mut().zip(from) {
                    *to = mix(mix(*to, *from), salt);
                }
                Ok(())
            });
        }
    }

    fn exchange(&mut self, program: &mut Program, name: String) {
        let (source, destination) = (self.pick_family(), self.pick_family());
        let (from, to) = (self.pick(source), self.pick(destination));
        let count = self.families[destination].partitions;
        let route = if self.random.chance(500) {
            Route::All
        } else {
            let mut random = self.random.clone();
            Route::fixed(self.families[source].partitions, |_| {
                (0..count).filter(|_| random.chance(600)).collect()
            })
        };
        let routes = route.clone();
        let scatter = program.scatter(name, from, route, move |numbers, out: &mut Outgoing<'_, u64>| {
            let source = out.source();
            let targets = match &routes {
                Route::All => (0..out.partitions()).collect(),
                Route::Fixed(routes) => routes[source as usize].clone(),
            };
            // Send nothing along some routes.
            for target in targets.into_iter().filter(|target| (numbers[0] ^ u64::from(*target)) & 3 != 0) {
                out.send(target, mix(numbers[1], u64::from(target)));
            }
            Ok(())
        });
        let salt = self.random.number();
        scatter.gather((), to, move |(), numbers, chunks: Incoming<'_, u64>| {
            for (source, chunk) in chunks.iter() {
                numbers[0] = mix(numbers[0], mix(*chunk, u64::from(source)));
            }
            numbers[1] = mix(numbers[1], salt);
            Ok(())
        });
    }

    fn reduce(&mut self, program: &mut Program, name: String) {
        let family = self.pick_family();
        let (many, one) = (self.pick(family), self.pick(0));
        if same(many, one) {
            return;
        }
        if self.random.chance(500) {
            program.tree_reduce(name, many, one, |sum, next| sum[0] = mix(sum[0], next[0]));
        } else {
            program.broadcast(name, one, many);
        }
    }

    fn branch(&mut self, program: &mut Program, name: String, depth: u32) {
        let on = self.pick(0);
        let generator = std::cell::RefCell::new(self);
        program.if_signal(
            name,
            on,
            |numbers| numbers[0] & 4 == 0,
            |then| generator.borrow_mut().block(then, depth + 1),
            |otherwise| generator.borrow_mut().block(otherwise, depth + 1),
        );
    }

    /// Adds a loop with its signal in the middle of the body.
    fn repeat(&mut self, program: &mut Program, name: String, depth: u32) {
        let times = 1 + self.random.below(3);
        let counter = program.dataset(format!("{name}: mine"), 1, |_| Ok(0u64));
        program.transform(format!("{name}: reset"), (), counter, |(), counter| {
            *counter = 0;
            Ok(())
        });
        program.repeat(name.clone(), |body| {
            self.block(body, depth + 1);
            body.transform(format!("{name}: count"), (), counter, |(), counter| {
                *counter += 1;
                Ok(())
            });
            body.while_signal(format!("{name}: go on"), counter, move |counter| *counter < times);
            self.transform(body, format!("{name}: second half"));
        });
    }
}

fn same(a: Dataset<Numbers>, b: Dataset<Numbers>) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

impl TestProgram {
    /// Returns the content of all datasets after a run.
    pub fn contents(&self, outcome: &Outcome) -> Vec<Vec<Numbers>> {
        self.datasets.iter().map(|&dataset| outcome.partitions(dataset).unwrap()).collect()
    }
}
