"""Values, ids, errors, codecs and estimators that every other package uses. Pure; imports no other package."""
