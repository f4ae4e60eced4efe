//! A JPEG picture (a file, or a frame of an MJPEG camera) into a frame.
