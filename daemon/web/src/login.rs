//! Login: takes the token from a form, and sets the cookie that stands for it in later requests.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::header::{LOCATION, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::errors::Problem;
use crate::guard::{COOKIE_NAME, Guard};
use crate::listen::connection::Peer;
use crate::page;

/// How long a browser keeps the cookie.
const KEPT_S: u32 = 30 * 24 * 3600;

/// `POST /login` with the form's field `token`.
pub async fn login(State(guard): State<Arc<Guard>>, Extension(peer): Extension<Peer>, form: String) -> Response {
    let rules = guard.rules();
    if !rules.asks() {
        return to_page(None);
    }
    let Some((_, token)) = form_urlencoded::parse(form.as_bytes()).find(|(name, _)| name == "token") else {
        return Problem::bad_request("the form has no field `token`").into_response();
    };
    match rules.cookie_for(token.trim()) {
        Some(cookie) => to_page(Some(cookie)),
        None => {
            guard.refuse_slowly(peer).await;
            let headers = [(WWW_AUTHENTICATE, "Bearer realm=\"visiond\"")];
            (StatusCode::UNAUTHORIZED, headers, page::login("Wrong token.")).into_response()
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
