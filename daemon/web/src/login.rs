//! Logging in: a form for the token, and the cookie that stands for it from then on.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State as Extract};
use axum::http::header::{LOCATION, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use crate::errors::Problem;
use crate::guard::{COOKIE_NAME, Guard};
use crate::listen::connection::Peer;
use crate::page;

/// How long a browser keeps the cookie.
const KEPT_S: u32 = 30 * 24 * 3600;

/// `/login`
pub fn routes(guard: &Arc<Guard>) -> Router {
    Router::new().route("/login", post(login)).with_state(Arc::clone(guard))
}

/// `POST /login` with the form's field `token`.
async fn login(Extract(guard): Extract<Arc<Guard>>, Extension(peer): Extension<Peer>, form: String) -> Response {
    let rules = guard.rules();
    if !rules.asks() {
        return to_page(None);
    }
    let Some(token) = field(&form, "token") else {
        return Problem::new(StatusCode::BAD_REQUEST, "the form has no field `token`").into_response();
    };
    match rules.cookie_for(token.trim()) {
        Some(cookie) => to_page(Some(cookie)),
        None => {
            guard.refuse_slowly(peer).await;
            let headers = [(WWW_AUTHENTICATE, "Bearer realm=\"visiond\"")];
            (StatusCode::UNAUTHORIZED, headers, page::login("This is not the token.")).into_response()
        }
    }
}

fn to_page(cookie: Option<&str>) -> Response {
    let mut answer = (StatusCode::SEE_OTHER, [(LOCATION, "/")]).into_response();
    let cookie =
        cookie.map(|cookie| format!("{COOKIE_NAME}={cookie}; Path=/; Max-Age={KEPT_S}; HttpOnly; SameSite=Strict"));
    // A digest in hexadecimal is a header's value.
    if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::try_from(cookie).ok()) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    answer
}

/// A form's field.
fn field(form: &str, name: &str) -> Option<String> {
    let (_, value) = form.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forms_field_is_unescaped() {
        assert_eq!(field("a=1&token=s%3Aecret+%2b%C3%BC", "token").as_deref(), Some("s:ecret +ü"));
        for none in ["", "token", "tokens=1", "token=%f", "token=%zz", "token=%ff"] {
            assert_eq!(field(none, "token"), None, "{none}");
        }
    }
}
