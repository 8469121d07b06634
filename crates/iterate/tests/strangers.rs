//! Connections from strangers, who reach the port but do not know the secret.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pellucid_iterate::{Cluster, Invitation, Plan, Program, RunOptions, WorkerSettings, control, work};

/// Environment variable that makes this test binary a controller.
const CONTROLLER: &str = "PELLUCID_TEST_CONTROLLER";

const SECRET: &str = "between the controller and its worker";

fn plan() -> Arc<Plan> {
    let mut program = Program::new("strangers");
    let data = program.dataset("data", 4, |index| Ok(u64::from(index)));
    program.times("rounds", 20, |body| {
        body.transform("add", (), data, |(), data| {
            *data += 1;
            Ok(())
        });
    });
    program.output(data);
    program.build().unwrap()
}

/// Not a test: the entry point of the controller process.
#[test]
fn controller_process() {
    if std::env::var_os(CONTROLLER).is_none() {
        return;
    }
    let cluster = Cluster { workers: 1, secret: Some(SECRET.into()), ..Cluster::default() };
    let options = RunOptions { wait_limit: Duration::from_secs(60), ..RunOptions::default() };
    let outcome = control(plan(), &cluster, options, |invitation| {
        println!("\ncontroller {}", invitation.controller);
        Ok(Vec::new())
    });
    assert_eq!(outcome.unwrap().iterations, 20);
}

/// Returns whether the other end closes a connection within some time.
fn closes(mut stream: &TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within.max(Duration::from_millis(1)))).unwrap();
    loop {
        match stream.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

/// The controller has 50 file descriptors, and 300 strangers hold their connections open.
#[test]
fn worker_joins_despite_more_strangers_than_file_descriptors() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 50; exec \"$0\" --exact controller_process --nocapture"]);
    command.arg(std::env::current_exe().unwrap()).env(CONTROLLER, "1");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let controller = lines.find_map(|line| Some(line.unwrap().strip_prefix("controller ")?.to_string()));
    let controller = controller.expect("the controller started");
    let strangers: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(&controller).expect("the port is open")).collect();
    let invitation = Invitation { controller, secret: SECRET.into(), encrypted: false };
    work(plan(), &invitation, &WorkerSettings::default()).unwrap();
    let ended = child.wait().unwrap();
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(ended.success(), "{told}");
    // A line per stranger would be 300.
    let count = told.lines().filter(|line| line.starts_with("pellucid: ")).count();
    assert!((1..30).contains(&count), "{told}");
    drop(strangers);
}

#[test]
fn idle_strangers_beyond_the_limit_are_dropped_at_once() {
    let cluster = Cluster { workers: 1, ..Cluster::default() };
    let options = RunOptions { wait_limit: Duration::from_secs(60), ..RunOptions::default() };
    let program = plan();
    let outcome = control(program.clone(), &cluster, options, |invitation| {
        let strangers: Vec<TcpStream> =
            (0..150).map(|_| TcpStream::connect(&invitation.controller).unwrap()).collect();
        // The handshake's own limit is five seconds.
        let until = Instant::now() + Duration::from_secs(3);
        let ended = strangers.iter().take(150 - 64);
        let ended =
            ended.filter(|stream| closes(stream, until.saturating_duration_since(Instant::now()))).count();
        assert_eq!(ended, 150 - 64);
        let invitation = invitation.clone();
        std::thread::spawn(move || work(program, &invitation, &WorkerSettings::default()).unwrap());
        std::mem::forget(strangers);
        Ok(Vec::new())
    });
    assert_eq!(outcome.unwrap().iterations, 20);
}
