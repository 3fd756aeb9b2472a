//! The program: a user of the library like any other.

mod cli;

fn main() -> std::process::ExitCode {
    cli::run()
}
