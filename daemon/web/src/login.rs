//! Login: takes the token from a form, and sets the cookie that stands for it in later requests.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::http::header::{LOCATION, SET_COOKIE, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};

use crate::errors::Problem;
use crate::guard::{COOKIE_NAME, Guard, refuse_slowly};
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
            refuse_slowly(&guard.wrong_tokens, peer).await;
            let headers = [(WWW_AUTHENTICATE, "Bearer realm=\"visiond\"")];
            (StatusCode::UNAUTHORIZED, headers, page::login("Wrong token.")).into_response()
        }
    }
}

fn to_page(cookie: Option<&str>) -> Response {
    let cookie = cookie.map(|cookie| {
        [(SET_COOKIE, format!("{COOKIE_NAME}={cookie}; Path=/; Max-Age={KEPT_S}; HttpOnly; SameSite=Strict"))]
    });
    (StatusCode::SEE_OTHER, [(LOCATION, "/")], cookie, ()).into_response()
}
