//! Two names over TLS: `cargo run --example tls -- 127.0.0.1:8443 a.pem 8001 b.pem 8002`, where each file has a certificate, its
//! chain and its key. `curl --connect-to ::127.0.0.1:8443 https://…` with a name of either.

use std::fs;

use carom::table::certs::{Certificate, Certificates};
use carom::{Bounce, Head, Proxy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [listen, a_file, a, b_file, b]: [String; 5] = std::env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| "usage: tls LISTEN PEM BACKEND PEM BACKEND")?;
    let first = Certificate::from_pem(&fs::read(a_file)?)?;
    let names = first.names().to_vec();
    let certificates = Certificates::of([first, Certificate::from_pem(&fs::read(b_file)?)?]);
    let proxy = Proxy::builder()
        .listen_tls(listen.as_str())
        .certify(certificates)
        .decide(async move |head: &Head<'_>, bounce: Bounce| match head.host() {
            Some(host) if names.iter().any(|name| *host == **name) => bounce.to(a.as_str()),
            _ => bounce.to(b.as_str()),
        })
        .bind()
        .await?;
    println!("listening on {}", proxy.addresses()[0]);
    proxy.run_until(std::future::pending()).await?;
    Ok(())
}
