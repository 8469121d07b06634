//! Compares applications with their definitions on small data, and bit for bit across numbers of threads.

use super::*;
use crate::input::{Table, edges};
use crate::kernels::random::Random;
use logistic_regression::Algorithm;
use pellucid_iterate::{Data, RunOptions, run, testing};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).expect("a file for a test");
    path
}

fn table(folder: &TempDir, name: &str, text: &str) -> Arc<Table> {
    Arc::new(Table::open(&file(folder, name, text)).expect("a table for a test"))
}

/// Returns the job's result after checking that it is bit-identical on 1, 2 and 4 threads.
fn outcome<R: PartialEq + fmt::Debug>(
    job: impl Fn() -> Result<Job<R>, ApplicationError>,
) -> Result<Finished<R>, JobError> {
    let one = |threads| {
        let job = job().expect("a job");
        let outcome = run(job.plan.clone(), RunOptions { threads, ..RunOptions::default() })?;
        job.finish(&outcome)
    };
    let (first, others) = (one(1)?, [one(2)?, one(4)?]);
    for other in others {
        assert_eq!((other.iterations, &other.result), (first.iterations, &first.result), "not bit-identical");
    }
    Ok(first)
}

fn labelled(random: &mut Random, rows: usize) -> String {
    let mut text = "y,a,b,c\n".to_string();
    for _ in 0..rows {
        let x = [random.normal(), random.normal(), random.normal()];
        let z = x[0] - 2.0 * x[1] + 0.5 + random.normal();
        text += &format!("{},{},{},{}\n", u8::from(z > 0.0), x[0], x[1], x[2]);
    }
    text
}

fn regression() -> logistic_regression::Options {
    logistic_regression::Options {
        label: "y".into(),
        features: None,
        l2: 1.0,
        algorithm: Algorithm::Lbfgs,
        tolerance: 1e-9,
        iterations: 500,
        precision: Precision::F64,
        partitions: Some(5),
    }
}

#[test]
fn regression_reaches_the_minimum_with_either_solver() -> Result<(), JobError> {
    let folder = tempfile::tempdir().expect("a folder");
    let data = table(&folder, "a.csv", &labelled(&mut Random::new(1), 700));
    let fit =
        |options: logistic_regression::Options| outcome(|| logistic_regression::job(data.clone(), &options));
    let best = fit(regression())?;
    assert!(best.converged && best.iterations < 60, "{best:?}");
    assert!(best.result.coefficients[0] > 0.5 && best.result.coefficients[1] < -1.0, "{best:?}");
    let near = |other: &logistic_regression::Model, tolerance: f64| {
        let pairs = best.result.coefficients.iter().zip(&other.coefficients);
        pairs.chain([(&best.result.intercept, &other.intercept)]).all(|(a, b)| (a - b).abs() < tolerance)
    };
    let descent = Algorithm::GradientDescent { step: None };
    let slow = fit(logistic_regression::Options {
        algorithm: descent,
        iterations: 5000,
        tolerance: 1e-7,
        ..regression()
    })?;
    assert!(slow.converged && slow.iterations > best.iterations && near(&slow.result, 1e-4), "{slow:?}");
    let narrow = logistic_regression::Options { precision: Precision::F32, tolerance: 1e-5, ..regression() };
    assert!(near(&fit(narrow)?.result, 1e-3));
    let other = fit(logistic_regression::Options { partitions: Some(2), ..regression() })?;
    assert!(near(&other.result, 1e-7));
    let cut = fit(logistic_regression::Options { iterations: 3, ..regression() })?;
    assert!(!cut.converged && cut.iterations == 3 && cut.result.loss > best.result.loss);
    Ok(())
}

#[test]
fn invalid_labels_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |text: &str| {
        let options = logistic_regression::Options { partitions: Some(1), ..regression() };
        match logistic_regression::job(table(&folder, "a.csv", text), &options) {
            Err(error) => error.to_string(),
            Ok(job) => run(job.plan, RunOptions::default()).map(|_| ()).expect_err("accepted").to_string(),
        }
    };
    assert!(refused("y,x\n1,1\n1,2\n").contains("holds only label 1"));
    assert!(refused("y,x\n0,1\n0,2\n").contains("holds only label 0"));
    assert!(refused("y,x\n1,1\n3,2\n").contains("column y holds 3; labels are 0 and 1"));
    assert!(refused("y,x\n1,1\n0,2\n-1,3\n").contains("row 3: label y is -1, where others are 0 and 1"));
    assert!(refused("y,x\n1,1\nNaN,2\n").contains("row 2: column y is NaN"));
    assert!(refused("z,x\n1,1\n").contains("has no column y"));
    assert!(refused("y\n1\n0\n").contains("no column of numbers but the label"));
}

#[test]
fn minus_one_is_a_valid_label() -> Result<(), JobError> {
    let folder = tempfile::tempdir().expect("a folder");
    let text = labelled(&mut Random::new(2), 200);
    let zero = table(&folder, "a.csv", &text);
    let minus = table(&folder, "b.csv", &text.replace("\n0,", "\n-1,"));
    let fit = |data: &Arc<Table>| outcome(|| logistic_regression::job(data.clone(), &regression()));
    assert_eq!(fit(&zero)?.result, fit(&minus)?.result);
    Ok(())
}

fn clusters(init: kmeans::Init) -> kmeans::Options {
    kmeans::Options {
        features: None,
        init,
        tolerance: 0.0,
        iterations: 100,
        precision: Precision::F64,
        partitions: Some(6),
    }
}

#[test]
fn kmeans_finds_separate_clusters_and_agrees_with_lloyd() -> Result<(), JobError> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = Random::new(3);
    let (mut text, mut rows) = ("x,y\n".to_string(), Vec::new());
    for _ in 0..900 {
        let center = random.below(4) as f64;
        let row = [1e6 + 20.0 * center + random.normal(), 10.0 * (center % 2.0) + random.normal()];
        text += &format!("{},{}\n", row[0], row[1]);
        rows.push(row);
    }
    let data = table(&folder, "a.csv", &text);
    let found = outcome(|| kmeans::job(data.clone(), &clusters(kmeans::Init::PlusPlus { k: 4, seed: 7 })))?;
    assert!(found.converged, "{:?}", found.result.centers);
    // Lloyd's algorithm by definition, from the first four rows.
    let given = table(&folder, "b.csv", &text.lines().take(5).collect::<Vec<_>>().join("\n"));
    let fitted = outcome(|| kmeans::job(data.clone(), &clusters(kmeans::Init::Given(given.clone()))))?;
    let mut centers = rows[..4].to_vec();
    let nearest = |row: &[f64; 2], centers: &[[f64; 2]]| {
        let squared = |c: &[f64; 2]| (row[0] - c[0]).powi(2) + (row[1] - c[1]).powi(2);
        (0..4).map(|c| (squared(&centers[c]), c)).min_by(|a, b| a.0.total_cmp(&b.0)).expect("four centers")
    };
    for _ in 0..fitted.iterations {
        let mut sums = [[0.0; 3]; 4];
        for row in &rows {
            let (_, center) = nearest(row, &centers);
            (0..2).for_each(|at| sums[center][at] += row[at]);
            sums[center][2] += 1.0;
        }
        (0..4).for_each(|c| (0..2).for_each(|at| centers[c][at] = sums[c][at] / sums[c][2]));
    }
    for (a, b) in fitted.result.centers.iter().zip(&centers) {
        assert!((a[0] - b[0]).abs() < 1e-6 && (a[1] - b[1]).abs() < 1e-6, "{a:?}, not {b:?}");
    }
    let inertia: f64 = rows.iter().map(|row| nearest(row, &centers).0).sum();
    assert!((fitted.result.inertia / inertia - 1.0).abs() < 1e-9);
    let expected = rows.iter().map(|row| nearest(row, &centers).1 as u32);
    assert!(fitted.result.assignments.iter().copied().eq(expected));
    assert!(
        found.result.inertia < 1.001 * 900.0 * 2.0,
        "inertia {} is too high for four groups of variance 1",
        found.result.inertia
    );
    Ok(())
}

#[test]
fn more_centers_than_rows_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = |k| {
        let data = table(&folder, "a.csv", "x\n1\n1\n2\n2\n2\n1\n");
        kmeans::job(
            data,
            &kmeans::Options { partitions: Some(2), ..clusters(kmeans::Init::PlusPlus { k, seed: 1 }) },
        )
    };
    let refused = job(7).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("between 1 and 6 centers"), "{refused}");
    let job = job(3).expect("three centers for six rows");
    let failed = run(job.plan, RunOptions::default()).map(|_| ()).expect_err("two distinct rows");
    assert!(failed.to_string().contains("only 2 rows differ, too few for 3 centers"), "{failed}");
}

#[test]
fn pagerank_equals_its_definition() -> Result<(), JobError> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = Random::new(5);
    let n = 300;
    let edges: Vec<(usize, usize)> =
        (0..1500).map(|_| ((random.unit().powi(3) * 299.0) as usize, random.below(n) as usize)).collect();
    let text: String = edges.iter().map(|(a, b)| format!("{a} {b}\n")).collect();
    let path = file(&folder, "a.el", &text);
    let mut expected = vec![1.0 / n as f64; n as usize];
    let degree = |vertex| edges.iter().filter(|(source, _)| *source == vertex).count();
    let degrees: Vec<usize> = (0..n as usize).map(degree).collect();
    for _ in 0..200 {
        let dangling: f64 =
            expected.iter().zip(&degrees).filter(|(_, degree)| **degree == 0).map(|(rank, _)| rank).sum();
        let mut next = vec![0.15 / n as f64 + 0.85 * dangling / n as f64; n as usize];
        edges.iter().for_each(|(a, b)| next[*b] += 0.85 * expected[*a] / degrees[*a] as f64);
        expected = next;
    }
    for (partitions, precision, tolerance) in [
        (1, Precision::F64, 1e-12),
        (4, Precision::F64, 1e-12),
        (7, Precision::F64, 1e-12),
        (4, Precision::F32, 1e-6),
    ] {
        let options = pagerank::Options {
            damping: 0.85,
            tolerance,
            iterations: 500,
            precision,
            partitions: Some(partitions),
        };
        let found = outcome(|| pagerank::job(edges::read(&path, Some(n)).expect("a graph"), &options))?;
        assert!(found.converged, "{partitions} partitions");
        assert_eq!(found.result.vertices, (0..n).collect::<Vec<_>>());
        for (a, b) in found.result.ranks.iter().zip(&expected) {
            assert!((a - b).abs() < 10.0 * tolerance, "{partitions} partitions: {a}, not {b}");
        }
        let top = found.result.top(3);
        assert!(top.len() == 3 && top[0].1 >= top[1].1 && top[1].1 >= top[2].1);
        assert_eq!(top[0].1, found.result.ranks.iter().copied().fold(0.0, f64::max));
    }
    let bad = |partitions, damping| {
        let options = pagerank::Options {
            damping,
            tolerance: 0.0,
            iterations: 1,
            precision: Precision::F64,
            partitions: Some(partitions),
        };
        pagerank::job(edges::read(&path, None).expect("a graph"), &options)
            .err()
            .map(|error| error.to_string())
    };
    assert!(bad(4, 1.0).is_some_and(|message| message.contains("--damping 1")));
    assert!(bad(100_000, 0.5).is_some_and(|message| message.contains("into 100000 partitions; use fewer")));
    Ok(())
}

#[test]
fn partitions_survive_a_round_trip() {
    use crate::kernels::{pagerank::Tiles, rows::Rows};
    let mut random = Random::new(8);
    let mut rows = Rows::<f32>::zeroed(21, 3).expect("memory");
    (0..21).for_each(|row| (0..3).for_each(|column| rows.set(row, column, random.normal() as f32)));
    let mut bytes = Vec::new();
    rows.encode(&mut bytes);
    let back = Rows::<f32>::decode(&bytes).expect("rows");
    assert!((0..21).all(|row| (0..3).all(|column| back.get(row, column) == rows.get(row, column))));
    assert!(Rows::<f64>::decode(&bytes).is_err() && Rows::<f32>::decode(&bytes[..99]).is_err());
    let edges = (0..500).map(|_| (random.below(70_000) as u32, random.below(9_000) as u32)).collect();
    let tiles = Tiles::new(70_000, 9_000, edges).expect("memory");
    let mut bytes = Vec::new();
    tiles.encode(&mut bytes);
    assert_eq!(Tiles::decode(&bytes), Ok(tiles));
    bytes[0..8].copy_from_slice(&1_u64.to_le_bytes());
    assert!(Tiles::decode(&bytes).is_err(), "an edge outside of the blocks must fail to decode");
}

/// A snapshot or another worker may hold anything. Kernels would panic, or read other memory.
#[test]
fn partitions_of_other_lengths_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let graph = edges::read(&write("graph.el", "0 1\n1 2\n2 0\n0 2\n"), None).expect("a graph");
    let (tolerance, iterations, precision, partitions) = (0.0, 9, Precision::F64, Some(1));
    let ranks = pagerank::Options { damping: 0.85, tolerance, iterations, precision, partitions };
    let table = Arc::new(Table::open(&write("table.csv", "a,b,y\n1,2,0\n3,4,1\n5,7,1\n")).expect("a table"));
    let init = kmeans::Init::PlusPlus { k: 2, seed: 1 };
    let clusters = kmeans::Options { features: None, init, tolerance, iterations, precision, partitions };
    let fit = logistic_regression::Options {
        label: "y".into(),
        features: None,
        l2: 0.1,
        algorithm: logistic_regression::Algorithm::Lbfgs,
        tolerance,
        iterations,
        precision,
        partitions,
    };
    let plans = [
        pagerank::job(graph, &ranks).expect("a job").plan,
        kmeans::job(table.clone(), &clusters).expect("a job").plan,
        logistic_regression::job(table, &fit).expect("a job").plan,
    ];
    for (plan, name, expect) in [
        (0, "state", "invalid state of"),
        (0, "ranks", "invalid"),
        (0, "shares", "invalid shares of"),
        (0, "edges", "invalid"),
        (1, "centers", "invalid"),
        (1, "rows", "invalid"),
        (2, "coefficients", "invalid coefficients of"),
        (2, "solver", "invalid"),
        (2, "rows", "invalid"),
    ] {
        let plan = &plans[plan];
        let bytes = testing::load(plan, name);
        assert_eq!(testing::decode(plan, name, &bytes), Ok(()), "{name}");
        // A table with no rows, a vector with a number more, and vertices that the graph does not have.
        let mut other = bytes.clone();
        match name {
            "rows" => other = [0u64, 3].map(u64::to_le_bytes).concat(),
            "edges" => other[..8].copy_from_slice(&99u64.to_le_bytes()),
            "ranks" => other = [&1u64.to_le_bytes()[..], &[0; 16]].concat(),
            "centers" => {
                other.clear();
                pack(&[&[0.0; 6], &[1.0; 4]], &mut other);
            }
            "solver" => {
                other.clear();
                pack(&[&[0.0; 4], &[1.0; 2], &[], &[1.0; 3], &[0.1]], &mut other);
            }
            _ => other.extend([0; 8]),
        }
        let error = testing::decode(plan, name, &other).expect_err(name).to_string();
        assert!(error.contains(expect) && error.contains("expected"), "{name}: {error}");
    }
}
