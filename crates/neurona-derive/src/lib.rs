//! `#[derive(Module)]`: the walk over a struct's fields that makes it a model of Neurona.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Result, parse_macro_input};

/// Writes `neurona::nn::Module` for a struct: every field is a part of the model under its own name.
/// Fields marked `#[module(skip)]` are left out.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "Module can be derived for structs only"));
    };
    let mut visits = Vec::new();
    for (index, field) in data.fields.iter().enumerate() {
        if skipped(field)? {
            continue;
        }
        let (name, access) = match (&data.fields, &field.ident) {
            (Fields::Named(_), Some(ident)) => (ident.to_string().trim_start_matches("r#").to_string(), quote!(#ident)),
            _ => {
                let index = syn::Index::from(index);
                (index.index.to_string(), quote!(#index))
            }
        };
        visits.push(quote!(visitor.child(#name, &self.#access);));
    }
    let ident = &input.ident;
    let mut generics = input.generics.clone();
    for parameter in input.generics.type_params() {
        let parameter = &parameter.ident;
        generics.make_where_clause().predicates.push(syn::parse_quote!(#parameter: ::neurona::nn::Module));
    }
    let (implementation, types, conditions) = generics.split_for_impl();
    Ok(quote! {
        impl #implementation ::neurona::nn::Module for #ident #types #conditions {
            fn visit(&self, visitor: &mut ::neurona::nn::Visitor<'_>) {
                #(#visits)*
            }
        }
    })
}

fn skipped(field: &syn::Field) -> Result<bool> {
    let mut skip = false;
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("skip") {
                return Err(meta.error("the only option is `skip`"));
            }
            skip = true;
            Ok(())
        })?;
    }
    Ok(skip)
}
