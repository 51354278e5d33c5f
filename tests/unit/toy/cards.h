VT_CARD(softcap)
