//! The live page: a few files that are part of the program, and rules by which a browser asks nobody else for anything.

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};

use super::{Answer, content};

/// What a browser may load for the page, and from where: from here alone.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Its files: path, kind, content.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/uPlot.css", "text/css; charset=utf-8", include_str!("page/uPlot.min.css")),
    ("/uPlot.js", "text/javascript; charset=utf-8", include_str!("page/uPlot.iife.min.js")),
];

/// The file at this path.
pub(super) fn file(path: &str) -> Option<Answer> {
    let (_, kind, text) = FILES.into_iter().find(|(at, ..)| *at == path)?;
    let mut answer = content(StatusCode::OK, kind, text.into());
    answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Some(answer)
}
