use super::*;

#[test]
fn each_error_says_what_to_do() {
    let call = |code| NvdecError::Call { call: "cuvidCreateDecoder", code };
    assert_eq!(call(2).to_string(), "cuvidCreateDecoder failed (2): the GPU has too little memory for another decoder");
    assert!(call(700).is_sticky() && !call(2).is_sticky());
    let kind = VideoKind { codec: VideoCodec::H264, chroma: Chroma::Yuv422, bits: 10 };
    assert_eq!(NvdecError::Kind(kind).to_string(), "the GPU's video engine does not decode H.264 of 10 bits, 4:2:2");
}
