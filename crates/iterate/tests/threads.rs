//! Compares jobs on real threads with sequential execution.

mod programs;

use std::time::Duration;

use pellucid_iterate::{
    JobControl, JobError, Outgoing, Program, ProgramError, Route, RunOptions, run, run_sequentially,
};
use programs::random_program;

fn options(threads: usize) -> RunOptions {
    RunOptions { threads, wait_limit: Duration::from_secs(20), ..RunOptions::default() }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for seed in 0..200 {
        let program = random_program(seed);
        let Ok(expected) = run_sequentially(program.plan.clone(), 3_000) else { continue };
        for threads in [1, 2, 4] {
            let outcome = run(program.plan.clone(), options(threads)).unwrap();
            assert!(
                program.contents(&outcome) == program.contents(&expected),
                "seed {seed}, {threads} threads"
            );
            assert_eq!(outcome.iterations, expected.iterations, "seed {seed}");
        }
    }
}

/// Short rounds, in which bundles are repeatedly notified just as they begin to wait. A single lost notification
/// stalls the job.
#[test]
fn notifications_are_not_lost_in_short_rounds() {
    const ROUNDS: u64 = 100_000;
    let mut program = Program::new("rounds");
    let (model, total) =
        (program.dataset("model", 1, |_| Ok(0u64)), program.dataset("total", 1, |_| Ok(0u64)));
    let local = program.dataset("local", 4, |_| Ok(0u64));
    program.repeat("rounds", |body| {
        body.broadcast("to all", model, local);
        body.tree_reduce("from all", local, total, |sum, next| *sum += next);
        body.transform("step", total, model, |_, model| {
            *model += 1;
            Ok(())
        });
        body.while_signal("again", model, |model| *model < ROUNDS);
    });
    program.output(model);
    program.output(total);
    let plan = program.build().unwrap();
    for threads in [2, 4] {
        let outcome = run(plan.clone(), options(threads)).unwrap();
        let found = (outcome.single(model).unwrap(), outcome.single(total).unwrap());
        assert_eq!(found, (ROUNDS, 4 * (ROUNDS - 1)));
    }
}

#[test]
fn fingerprint_differs_for_other_data() {
    let made_from = |what: &str| {
        let mut program = Program::new("same");
        program.made_from(what);
        let one = program.dataset("one", 1, |_| Ok(0u64));
        program.transform("nothing", one, (), |_, ()| Ok(()));
        program.build().unwrap().fingerprint()
    };
    assert_eq!(made_from("january"), made_from("january"));
    assert_ne!(made_from("january"), made_from("february"));
}

/// Runs a program whose kernel fails in one partition, and returns the error.
fn failing(kernel: fn(u64) -> pellucid_iterate::KernelResult) -> JobError {
    let mut program = Program::new("failing");
    let numbers = program.dataset("numbers", 4, |index| Ok(u64::from(index)));
    program.transform("check", numbers, (), move |number, ()| kernel(*number));
    run(program.build().unwrap(), options(2)).unwrap_err()
}

#[test]
fn kernel_error_names_stage_and_partition() {
    let error = failing(|number| if number == 2 { Err("two is not allowed".into()) } else { Ok(()) });
    assert_eq!(error.to_string(), r#"stage "check", partition 2: two is not allowed"#);
}

#[test]
fn kernel_panic_names_stage_and_partition() {
    let error = failing(|number| {
        assert_ne!(number, 3, "three");
        Ok(())
    });
    let text = error.to_string();
    assert!(text.starts_with(r#"stage "check", partition 3: the kernel panicked"#), "{text}");
}

#[test]
fn loader_error_names_dataset_and_partition() {
    let mut program = Program::new("no data");
    let load = |index| if index == 1 { Err("no such file".into()) } else { Ok(0u64) };
    let numbers = program.dataset("numbers", 2, load);
    program.transform("nothing", numbers, (), |_, ()| Ok(()));
    let error = run(program.build().unwrap(), options(2)).unwrap_err();
    assert_eq!(error.to_string(), r#"dataset "numbers", partition 1: no such file"#);
}

#[test]
fn sending_off_the_route_fails_the_task() {
    let mut program = Program::new("astray");
    let numbers = program.dataset("numbers", 2, |_| Ok(0u64));
    let route = Route::fixed(2, |source| vec![source]);
    program
        .scatter("wrong way", numbers, route, |_, out: &mut Outgoing<'_, u64>| {
            out.send(1, 5);
            Ok(())
        })
        .gather((), numbers, |(), _, _| Ok(()));
    let text = run(program.build().unwrap(), options(1)).unwrap_err().to_string();
    assert!(text.contains("wrong way: scatter") && text.contains("it is not on the route"), "{text}");
}

#[test]
fn job_can_be_paused_resumed_and_cancelled() {
    let mut program = Program::new("for ever");
    let one = program.dataset("one", 1, |_| Ok(0u64));
    program.repeat("for ever", |body| {
        body.transform("count", (), one, |(), count| {
            *count += 1;
            Ok(())
        });
        body.while_signal("always", one, |_| true);
    });
    let control = JobControl::default();
    let (handle, mut seen) = (control.clone(), Vec::new());
    let progress = move |progress: &pellucid_iterate::Progress| {
        seen.push(progress.iteration);
        // Progress lags by one round.
        match seen.len() {
            2 => handle.pause(),
            6 => handle.resume(),
            9.. => {
                assert_eq!(seen[5], seen[4], "a paused job continued: {seen:?}");
                assert!(seen[8] > seen[5], "a resumed job did not continue: {seen:?}");
                handle.cancel();
            }
            _ => {}
        }
    };
    let options = RunOptions { control: Some(control), progress: Some(Box::new(progress)), ..options(1) };
    assert_eq!(run(program.build().unwrap(), options).unwrap_err(), JobError::Cancelled);
}

fn build_error(make: impl FnOnce(&mut Program)) -> String {
    let mut program = Program::new("mistaken");
    make(&mut program);
    program.build().unwrap_err().to_string()
}

#[test]
fn building_reports_invalid_programs() {
    let several = build_error(|p| {
        let many = p.dataset("many", 3, |_| Ok(0u64));
        p.repeat("loop", |body| body.while_signal("go on", many, |_| true));
    });
    assert!(several.contains(r#""go on""#) && several.contains(r#""many" has 3"#), "{several}");
    let partitionings = build_error(|p| {
        let (a, b) = (p.dataset("a", 3, |_| Ok(0u64)), p.dataset("b", 4, |_| Ok(0u64)));
        p.transform("both", a, b, |_, _| Ok(()));
    });
    assert!(partitionings.contains(r#""a" with 3 partitions and "b" with 4"#), "{partitionings}");
    let endless = build_error(|p| {
        let a = p.dataset("a", 1, |_| Ok(0u64));
        p.repeat("round and round", |body| body.transform("nothing", a, (), |_, ()| Ok(())));
    });
    assert!(endless.contains("round and round") && endless.contains("no signal"), "{endless}");
    let twice = build_error(|p| {
        let a = p.dataset("a", 1, |_| Ok(0u64));
        p.transform("alias", a, a, |_, _| Ok(()));
    });
    assert!(twice.contains(r#""a" twice"#), "{twice}");
    let outside = build_error(|p| {
        let a = p.dataset("a", 1, |_| Ok(0u64));
        p.while_signal("lost", a, |_| true);
    });
    assert!(outside.contains("outside a loop"), "{outside}");
    let mut other = Program::new("other");
    let foreign = other.dataset("foreign", 1, |_| Ok(0u64));
    let foreign = build_error(|p| p.transform("use", foreign, (), |_, ()| Ok(())));
    assert!(foreign.contains("another program"), "{foreign}");
    assert_eq!(Program::new("empty").build().unwrap_err(), ProgramError::Empty);
    let route = build_error(|p| {
        let a = p.dataset("a", 2, |_| Ok(0u64));
        let scatter =
            p.scatter("far", a, Route::fixed(2, |_| vec![7]), |_, _: &mut Outgoing<'_, u64>| Ok(()));
        scatter.gather((), a, |(), _, _| Ok(()));
    });
    assert!(route.contains("partition 7 is out of range; there are 2"), "{route}");
}
