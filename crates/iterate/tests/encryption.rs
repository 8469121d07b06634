//! Encrypted connections, seen from the network: a proxy between a worker and its controller records or changes
//! the bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pellucid_iterate::{
    Cluster, Dataset, Invitation, JobError, Outcome, Plan, Program, RunOptions, WorkerSettings, control,
    run_sequentially, work,
};

/// Content of the partitions, to be found on the wire.
const CONTENT: &[u8] = b"the content of a partition, which only its job should read";

/// More bytes than a worker sends in the handshake.
const HANDSHAKE_BYTES: usize = 700;

/// A program whose workers exchange chunks in every iteration, with its output.
fn program() -> (Arc<Plan>, Dataset<Vec<u8>>) {
    let mut program = Program::new("encryption");
    // Larger than a record, and than the buffers of a connection.
    let data = program
        .dataset("data", 4, |index| Ok([&[index as u8], CONTENT, &vec![index as u8; 300_000]].concat()));
    let (total, local) =
        (program.dataset("total", 1, |_| Ok(vec![0u8])), program.dataset("local", 4, |_| Ok(vec![0u8])));
    program.times("rounds", 50, |body| {
        body.tree_reduce("total", data, total, |sum, next| sum[0] = sum[0].wrapping_mul(3) ^ next[0]);
        body.broadcast("total to all", total, local);
        body.transform("mix", local, data, |local, data| {
            data[0] = data[0].wrapping_add(local[0]);
            Ok(())
        });
    });
    program.output(data);
    (program.build().unwrap(), data)
}

/// Bytes that passed the proxy.
type Record = Arc<Mutex<Vec<u8>>>;

/// Passes bytes on and records them. Changes one bit of the bytes after `intact`.
fn pass(mut from: TcpStream, mut to: TcpStream, intact: usize, record: &Record) {
    let mut passed = 0;
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if (passed..passed + read).contains(&intact) {
            buffer[intact - passed] ^= 1;
        }
        passed += read;
        record.lock().unwrap().extend_from_slice(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Returns an address at which a proxy passes one connection on to `controller`.
fn proxy(controller: &str, intact: usize, record: &Record) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (controller, record) = (controller.to_string(), record.clone());
    std::thread::spawn(move || {
        let (worker, _) = listener.accept().unwrap();
        let controller = TcpStream::connect(controller).unwrap();
        let (back, again) = (controller.try_clone().unwrap(), worker.try_clone().unwrap());
        let also = record.clone();
        std::thread::spawn(move || pass(back, again, usize::MAX, &also));
        pass(worker, controller, intact, &record);
    });
    address
}

/// Runs a job, one of whose workers connects through a proxy. Returns the outcome and the bytes.
fn run(
    plan: &Arc<Plan>,
    workers: u32,
    encrypted: bool,
    intact: usize,
) -> (Result<Outcome, JobError>, Vec<u8>) {
    let record = Record::default();
    let options = RunOptions { wait_limit: Duration::from_secs(20), ..RunOptions::default() };
    let cluster = Cluster { workers, encrypted, balances: false, ..Cluster::default() };
    let outcome = control(plan.clone(), &cluster, options, |invitation| {
        for rank in 0..workers {
            let (plan, mut invitation) = (plan.clone(), invitation.clone());
            if rank == 0 {
                invitation.controller = proxy(&invitation.controller, intact, &record);
            }
            let settings = WorkerSettings { rank, ..WorkerSettings::default() };
            std::thread::spawn(move || work(plan, &invitation, &settings));
        }
        Ok(Vec::new())
    });
    let bytes = record.lock().unwrap().clone();
    (outcome, bytes)
}

#[test]
fn encrypted_job_has_the_same_result_and_shows_none_of_it() {
    let (plan, data) = program();
    let expected = run_sequentially(plan.clone(), u64::MAX).unwrap().partitions(data).unwrap();
    for encrypted in [false, true] {
        let (outcome, bytes) = run(&plan, 2, encrypted, usize::MAX);
        assert_eq!(outcome.unwrap().partitions(data).unwrap(), expected);
        let shown = bytes.windows(CONTENT.len()).any(|window| window == CONTENT);
        assert_eq!(shown, !encrypted, "{} bytes", bytes.len());
    }
}

#[test]
fn changed_bit_ends_the_job_with_an_error_that_names_the_worker() {
    let (outcome, _) = run(&program().0, 1, true, HANDSHAKE_BYTES);
    let expected = "worker 0 was lost: its data was changed on the way (a record is not authentic)";
    assert_eq!(outcome.unwrap_err().to_string(), expected);
}

/// The controller and its worker differ in encryption.
#[test]
fn worker_with_another_encryption_is_refused() {
    for encrypted in [false, true] {
        let (plan, _) = program();
        let (told, worker) = (Arc::new(Mutex::new(String::new())), plan.clone());
        let of_worker = told.clone();
        let options = RunOptions { wait_limit: Duration::from_secs(1), ..RunOptions::default() };
        let cluster = Cluster { workers: 1, encrypted, ..Cluster::default() };
        let outcome = control(plan, &cluster, options, move |invitation| {
            let other = Invitation { encrypted: !encrypted, ..invitation.clone() };
            let error = work(worker, &other, &WorkerSettings::default()).unwrap_err();
            *of_worker.lock().unwrap() = error.to_string();
            Ok(Vec::new())
        });
        assert!(outcome.unwrap_err().to_string().contains("for workers to connect"));
        let told = told.lock().unwrap();
        let expected =
            if encrypted { "it encrypts connections, but" } else { "it does not encrypt connections" };
        assert!(told.contains(expected) && told.contains("pass --encrypt"), "{told}");
    }
}
