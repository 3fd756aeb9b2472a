//! The program.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::demo::run(8080, |_routes, _listen| {
        std::thread::park();
        ExitCode::SUCCESS
    })
}
